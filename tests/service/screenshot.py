"""The picture of the playground in the README, taken of a running service.

python -m tests.service.screenshot http://127.0.0.1:8000/ docs/images/playground.png
"""

import base64
import sys
from pathlib import Path

from tests.service.browser import Page, chromium

WIDTH, HEIGHT = 1280, 900


def shoot(url: str, path: Path, width: int = WIDTH, height: int = HEIGHT, dark: bool = False) -> None:
    """The sample's answer, as a screen of this size shows it."""
    with chromium() as driver:
        page = Page(driver, url)
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size(width, height))
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.open()
        page.run("document.getElementById('try').click()")
        page.wait(lambda: page.all(".card .text"))
        page.run("document.activeElement.blur()")
        path.write_bytes(base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]))


def size(width: int, height: int) -> dict[str, object]:
    """A window, as the debugging protocol takes it."""
    return {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}


if __name__ == "__main__":
    shoot(sys.argv[1], Path(sys.argv[2]))
