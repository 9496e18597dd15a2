// Every page: its path, the module in views/ that renders it, its name in the navigation.
// A view is one ES module with `export async function render(root, params, api)`. It fills `root` and may return a
// function that is called when the page is left. `params` has the variables of the path and `query` (URLSearchParams).
export const ROUTES = [
  { path: "/", view: "overview", nav: "Overview", title: "Overview" },
  { path: "/jobs", view: "jobs", nav: "Jobs", title: "Jobs" },
  { path: "/jobs/:id", view: "job", title: "Job" },
  { path: "/runs", view: "runs", nav: "Runs", title: "Runs" },
  { path: "/runs/:id", view: "run", title: "Run" },
  { path: "/datasets", view: "datasets", nav: "Datasets", title: "Datasets" },
  { path: "/datasets/:id", view: "dataset", title: "Dataset" },
  { path: "/agents", view: "agents", nav: "Agents", title: "Agents" },
  { path: "/agents/:id", view: "agent", title: "Agent" },
  { path: "/comparisons", view: "comparisons", nav: "Comparisons", title: "Comparisons" },
  { path: "/comparisons/:id", view: "comparison", title: "Comparison" },
  { path: "/evaluations/:id", view: "evaluation", title: "Evaluation" },
  { path: "/lineage/:id", view: "lineage", title: "Lineage" },
  { path: "/judging", view: "judging", nav: "Judging", title: "Judging" },
  { path: "/leaderboard", view: "leaderboard", nav: "Leaderboard", title: "Leaderboard" },
];

// The path below which a proxy publishes this page, such as "/quintain"; paths of this module and of views are below it.
const ROOT = document.querySelector('meta[name="root"]')?.content ?? "";

// Returns a path of this page as the browser requests it; other URLs as they are.
export const address = (url) => (url.startsWith("/") ? ROOT + url : url);

// Returns the path of the page that is open.
export const here = () => location.pathname.slice(ROOT.length) || "/";

// Prefix of an id -> the page of the object.
const PAGES = [["job-", "/jobs/"], ["traj-", "/runs/"], ["ds-", "/datasets/"], ["agent:", "/agents/"], ["cmp-", "/comparisons/"], ["eval-", "/evaluations/"]];

// Returns the URL of an object's page, or null for an id without a page.
export function urlOf(id) {
  const page = PAGES.find(([prefix]) => String(id).startsWith(prefix));
  if (!page) return null;
  const name = page[0] === "agent:" ? id.slice("agent:".length) : id;
  return page[1] + encodeURIComponent(name).replaceAll("%40", "@");
}

// Returns the route of a path with its variables, or null.
export function match(pathname) {
  const parts = pathname.split("/").filter(Boolean);
  for (const route of ROUTES) {
    const wanted = route.path.split("/").filter(Boolean);
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, i) => {
      if (!part.startsWith(":")) return part === parts[i];
      try { params[part.slice(1)] = decodeURIComponent(parts[i]); } catch { return false; }
      return true;
    });
    if (fits) return { route, params };
  }
  return null;
}
