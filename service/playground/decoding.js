// A file's bytes as text: what is no text is refused by its name; what is not UTF-8 is read as it declares, or by a guess.

const HEAD = 8192; // bytes: a NUL among them means that it is no text
const SAVE = "save it as plain text and take that";
const UNPACK = "unpack it and take what is in it";
const NO_TEXT = "there is no text to rank in it";
const SIGNATURES = [
  // as in service/files/kinds.py; the service reads what has no advice
  [/^\s*%PDF-/, "a PDF"],
  [/^PK\x03\x04.{26}mimetypeapplication\/epub/s, "an EPUB"],
  [/^PK\x03\x04.{26}mimetypeapplication\/vnd\.oasis\.opendocument/s, "an OpenDocument file", SAVE],
  [/^PK\x03\x04.*word\//s, "a Word document (DOCX)"],
  [/^PK\x03\x04.*xl\//s, "an Excel workbook (XLSX)", SAVE],
  [/^PK\x03\x04.*ppt\//s, "a PowerPoint presentation (PPTX)", SAVE],
  [/^PK\x03\x04/, "a ZIP archive"], // or one of these, as its table of contents says
  [/^\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1/, "an old Office document (DOC, XLS or PPT)", SAVE],
  [/^\{\\rtf/, "rich text (RTF)", SAVE],
  [/^(\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a)/, "compressed", UNPACK],
  [/^(\x89PNG|\xff\xd8\xff|GIF8[79]a.{0,6}\0|RIFF.{4}WEBPVP8|II\*\0|MM\0\*)/s, "an image", NO_TEXT],
  [/^(ID3[\x02-\x04]|OggS\0|fLaC\0|RIFF.{4}WAVEfmt |\0\0\0.ftyp)/s, "sound or video", NO_TEXT],
  [/^\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<(!doctype\s+html|html|head|body|script)\b/is, "an HTML page"],
  [/^\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<svg\b/is, "an image", NO_TEXT],
  [/\0/, "binary", "take a text"],
];
const PAGE = /\.x?html?$/i;
const MARKS = [
  ["\xef\xbb\xbf", "utf-8"],
  ["\xff\xfe\0\0", "utf-32"],
  ["\0\0\xfe\xff", "utf-32"],
  ["\xff\xfe", "utf-16le"],
  ["\xfe\xff", "utf-16be"],
];
const WESTERN = 0.25; // of the bytes of a text in Western Europe's alphabets are beyond ASCII, at most
const KANA = 0.3; // of the letters of a Japanese text, at least

/** Bytes that are no text: what they are, and what to do. */
export class NotTextError extends Error {}

const amount = (text, pattern) => [...text.matchAll(pattern)].length;

/** The text in an encoding, or null where the bytes are none in it. */
function strictly(bytes, encoding) {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return null; // or the browser does not know the encoding
  }
}

/** `{text, problem}` of bytes that are not UTF-8. Raises NotTextError. */
function guessed(bytes) {
  const text = new TextDecoder().decode(bytes);
  const wrong = amount(text, /\ufffd/g);
  const right = amount(text, /[^\0-\x7f]/gu) - wrong;
  if (wrong < right) return { text, problem: "is not all UTF-8; what is not is read as \ufffd" };
  const guess = (encoding) => `is not UTF-8; read as ${encoding}, which is a guess: if it is wrong, save the file as UTF-8`;
  for (const encoding of ["shift_jis", "euc-jp"]) {
    const japanese = strictly(bytes, encoding);
    if (japanese !== null && amount(japanese, /[\u3041-\u30fa]/g) > KANA * amount(japanese, /[^\0-\x7f]/gu)) {
      return { text: japanese, problem: guess(encoding) };
    }
  }
  const high = bytes.reduce((sum, byte) => sum + (byte > 0x7f), 0);
  if (high > WESTERN * bytes.length) throw new NotTextError("is in an encoding that this page does not know: save it as UTF-8");
  return { text: new TextDecoder("windows-1252").decode(bytes), problem: guess("windows-1252") };
}

/** `{marked, signature}`: the encoding that a byte order mark names, and what is known of a file that begins so. */
function begins(bytes) {
  const head = String.fromCharCode(...bytes.subarray(0, HEAD));
  const [mark, marked] = MARKS.find(([mark]) => head.startsWith(mark)) ?? ["", ""];
  const wide = marked.startsWith("utf-16");
  return { marked, signature: wide ? undefined : SIGNATURES.find(([pattern]) => pattern.test(head.slice(mark.length))) };
}

/** Whether it takes the service to find the text in a file. */
export function holdsText(bytes, name) {
  const { signature } = begins(bytes);
  return signature ? !signature[2] : PAGE.test(name);
}

/** `{text, problem}` of a file that is a text; the problem is empty where there is none. `type` may declare a charset. Raises NotTextError. */
export function decode(bytes, type = "") {
  const { marked, signature } = begins(bytes);
  if (marked === "utf-32") throw new NotTextError("is in UTF-32: save it as UTF-8");
  if (signature) throw new NotTextError(`is ${signature[1]}, not taken: ${signature[2]}`);
  const declared = /charset="?([\w-]+)/i.exec(type)?.[1];
  for (const encoding of [marked, "utf-8", declared].filter(Boolean)) {
    const text = strictly(bytes, encoding);
    if (text !== null) return { text, problem: "" };
  }
  return guessed(bytes);
}
