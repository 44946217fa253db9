// Asks for the figures once a second while the page is looked at, and draws the last minute.
"use strict";

const seconds = 60, width = 240, height = 48;
const histories = new Map(); // by chart: [{time, value}], a value that can be drawn, oldest first
const last = new Map(); // by chart: {time, value, per} as they came
const status = document.getElementById("status");
const pause = document.getElementById("pause");
let paused = false;

function text(n) {
	const size = Math.abs(n);
	return n.toLocaleString("en", {maximumFractionDigits: size < 10 ? 2 : size < 100 ? 1 : 0});
}

// take notes the values in a part of a page, and redraws.
function take(part) {
	const time = Number(part.dataset.time);
	for (const item of part.querySelectorAll("#values li")) {
		const d = item.dataset;
		const figure = document.getElementById("chart-" + d.id);
		if (figure) figure.hidden = "idle" in d;
		const now = {time, value: Number(d.value), per: Number(d.per)};
		const before = last.get(d.id);
		last.set(d.id, now);
		let value = now.value;
		if ("counter" in d) {
			if (!before || time <= before.time || value < before.value) {
				if (before && value < before.value) histories.delete(d.id); // another process
				continue;
			}
			const by = "per" in d ? now.per - before.per : (time - before.time) / 1000;
			value = by > 0 ? (value - before.value) / by : 0;
		}
		const history = histories.get(d.id) || [];
		history.push({time, value});
		while (history[0].time < time - seconds * 1000) history.shift();
		histories.set(d.id, history);
		if (figure) draw(figure, history, d.unit);
	}
	for (const charts of document.querySelectorAll(".charts")) {
		charts.hidden = Array.from(charts.querySelectorAll("figure")).every(f => f.hidden);
	}
}

function draw(figure, history, unit) {
	const now = history[history.length - 1];
	const most = Math.max(...history.map(p => p.value));
	const output = figure.querySelector("output");
	output.textContent = text(now.value) + " ";
	if (unit) output.append(Object.assign(document.createElement("small"), {textContent: unit}));
	figure.querySelector(".range").textContent = "max " + text(most);
	const x = p => (width - (now.time - p.time) / 1000 * width / seconds).toFixed(1);
	const y = p => (height - 2 - (most > 0 ? p.value / most : 0) * (height - 4)).toFixed(1);
	const line = "M" + history.map(p => x(p) + " " + y(p)).join("L");
	figure.querySelector(".line").setAttribute("d", line);
	figure.querySelector(".area").setAttribute("d", line + "L" + width + " " + height + "L" + x(history[0]) + " " + height + "Z");
}

// replace puts a newer part of the page in the place of the one with its id, unless the
// reader has marked something, or is clicking on a link. What the reader has folded, or unfolded, stays so until traffic
// begins or ends.
function replace(part) {
	const old = document.getElementById(part.id);
	if (!getSelection().isCollapsed || old.querySelector("a:active")) return;
	for (const now of part.querySelectorAll("details")) {
		const before = document.getElementById(now.id);
		if (before && "idle" in before.dataset === "idle" in now.dataset) now.open = before.open;
	}
	const list = of => Array.from(of.querySelectorAll("a, summary"));
	const focused = list(old).indexOf(document.activeElement), count = list(old).length;
	old.replaceWith(document.adoptNode(part));
	if (focused >= 0 && list(part).length === count) list(part)[focused].focus();
}

// refresh replaces the verdict and the tables.
async function refresh() {
	try {
		const answer = await fetch("?format=parts", {cache: "no-store", signal: AbortSignal.timeout(5000)});
		if (!answer.ok) throw new Error("the server answers " + answer.status);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		const parts = page.getElementById("parts"), verdict = page.getElementById("verdict");
		if (!parts || !verdict) throw new Error("the answer is another page");
		take(parts);
		replace(verdict);
		replace(parts);
		status.textContent = "live";
		status.className = "";
	} catch (err) {
		status.textContent = "no answer: " + err.message;
		status.className = "bad";
	}
}

async function run() {
	if (!paused && !document.hidden) await refresh();
	setTimeout(run, 1000);
}

pause.hidden = false;
pause.addEventListener("click", () => {
	paused = !paused;
	pause.textContent = paused ? "Go on" : "Pause";
	if (paused) status.textContent = "paused";
});
take(document.getElementById("parts"));
setTimeout(run, 1000);
