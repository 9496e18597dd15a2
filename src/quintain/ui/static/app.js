// Entry of the page: connects to the server and shows the view of the address.
import { connect } from "./api.js";
import { append } from "./elements.js";
import { navigation, preload, start } from "./router.js";
import { here } from "./routes.js";

append(document.getElementById("nav"), navigation());
preload(here());
const api = await connect();
document.documentElement.classList.toggle("read-only", !api.mayChange);
await start(document.getElementById("main"), api);
