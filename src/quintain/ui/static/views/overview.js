import { h } from "../elements.js";
export async function render(root) { root.append(h("h1", null, "Overview")); }
