// The tags of a run, each a link to the runs that have it; with the token they are added and removed.
import { h, replace, toast } from "./elements.js";
import { inlineText } from "./text.js";

const KEPT = ["live", "correction", "replaced", "rollout", "evaluation"]; // They say where a run comes from.

// Returns an element, or null where there is nothing to show or do.
export function runTags(id, tags, api) {
  if (!tags.length && !api.mayChange) return null;
  const element = h("div", { class: "row" });

  async function change(changes) {
    try {
      await api.call("tag_trajectories", { trajectory_ids: [id], ...changes });
      tags = [...tags.filter((tag) => !changes.remove?.includes(tag)), ...(changes.add ?? []).filter((tag) => !tags.includes(tag))];
      show();
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  const remover = (tag) => h("button", { class: "small", "aria-label": `Remove the tag ${tag}`, onclick: () => change({ remove: [tag] }) }, "×");

  function show() {
    const input = h("input", { "aria-label": "Add a tag", placeholder: "Add a tag", maxlength: 100, size: 10, autocomplete: "off" });
    replace(element,
      tags.map((tag) => h("span", null, h("a", { href: `/runs?tag=${encodeURIComponent(tag)}`, class: "badge" }, inlineText(tag)), api.mayChange && !KEPT.includes(tag) && remover(tag))),
      api.mayChange && h("form", { onsubmit: (event) => {
        event.preventDefault();
        if (input.value.trim()) change({ add: [input.value.trim()] });
      } }, input));
  }

  show();
  return element;
}
