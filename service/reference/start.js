// Addresses are relative to the page, which may have a prefix; no validator on the internet is asked.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#reference", deepLinking: true, validatorUrl: null });
