// Stored text as it is: by text nodes, with characters that hide or reorder text shown by their code points.
import { h } from "./elements.js";

// Controls except tab and line ends, bidirectional controls, and invisible format characters.
const HIDDEN = /(?![\t\n\r])[\p{Cc}\p{Bidi_Control}\u200b\u2060\ufeff]/gu;

// Returns the pieces of a text: strings, and marks for hidden characters.
export function pieces(text) {
  const found = [];
  let start = 0;
  for (const hit of text.matchAll(HIDDEN)) {
    if (hit.index > start) found.push(text.slice(start, hit.index));
    const code = `U+${hit[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    found.push(h("span", { class: "hidden-character", title: "A character that is not visible" }, code));
    start = hit.index + hit[0].length;
  }
  if (start < text.length) found.push(text.slice(start));
  return found;
}

// A reference to an environment as people read it: names of files in place of their paths.
export const placeName = (reference) => String(reference).replace(/((?:file|tasks|repos)=)[^&,()]*\//g, "$1");

// A block of stored text; lines are kept and wrapped.
export function textBlock(text, kind = "") {
  return h("div", { class: `stored ${kind}`, dir: "auto" }, pieces(text));
}

// Stored text within a line.
export function inlineText(text, kind = "") {
  return h("bdi", { class: kind }, pieces(String(text)));
}

// The text of a content: a string, or parts. Each has a `text`, or the `uri` of a picture, which is named only.
export function contentText(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? `[picture: ${part.uri}]`).join("\n");
}
