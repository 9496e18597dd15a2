// The script of a saved report: draws the figure that the page holds as data. The tables are in the page itself.
import { figure } from "./chart.js";
import { forest } from "./forest.js";

const description = JSON.parse(document.getElementById("data").textContent);
document.getElementById("figure").append(figure(description, { others: { forest } }));
