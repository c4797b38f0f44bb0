// What a page of the console does without being loaded again: its numbers follow the server's, and it has keys.
"use strict";

const part = document.querySelector("[data-part]");
const updates = document.getElementById("updates");
const help = document.getElementById("help");
const boxes = () => [...document.querySelectorAll("input[name='keys'][type='checkbox']")];
const isChosen = () => boxes().some((box) => box.checked) || Boolean(String(getSelection()));
let isPaused = false;
let source = null;
let timer = null;

// The numbers. They rest while something is selected, while the page is hidden, and when the user says so.

function show(html) {
    if (!part || isPaused || document.hidden || isChosen() || part.contains(document.activeElement)) {
        updates.classList.toggle("held", Boolean(part));
        return;
    }
    updates.classList.remove("held", "lost");
    const place = rows().indexOf(document.querySelector("tr.at"));
    part.innerHTML = html; // of this server, escaped there; the policy of the page runs no script in it
    if (place >= 0 && rows()[place]) rows()[place].classList.add("at");
}

function follow() {
    stop();
    if (!part || isPaused || document.hidden) return;
    if (document.body.dataset.live === "poll") {
        timer = setInterval(poll, 3000);
        return;
    }
    source = new EventSource(document.body.dataset.events);
    source.addEventListener("snapshot", (event) => show(JSON.parse(event.data)));
    source.onerror = () => updates.classList.add("lost");
}

async function poll() {
    if (isPaused || isChosen()) return;
    try {
        const answer = await fetch(document.body.dataset.poll);
        if (!answer.ok) throw new Error(answer.statusText);
        show(await answer.text());
    } catch {
        updates.classList.add("lost");
    }
}

function stop() {
    if (source) source.close();
    clearInterval(timer);
    source = timer = null;
}

function pause() {
    isPaused = !isPaused;
    updates.setAttribute("aria-pressed", String(isPaused));
    updates.textContent = isPaused ? "paused" : "live";
    follow();
}

// The rows of the page's table, and those that are selected.

const rows = () => [...document.querySelectorAll("[data-row]")];

function step(by) {
    const all = rows();
    if (!all.length) return;
    const from = all.findIndex((row) => row.classList.contains("at"));
    const to = Math.min(all.length - 1, Math.max(0, from < 0 ? 0 : from + by));
    all.forEach((row, place) => row.classList.toggle("at", place === to));
    all[to].scrollIntoView({ block: "nearest" });
}

function count() {
    const n = boxes().filter((box) => box.checked).length;
    const told = document.getElementById("selected");
    if (told) told.textContent = n || "";
    const all = document.getElementById("all");
    if (all) {
        all.checked = n > 0 && n === boxes().length;
        all.indeterminate = n > 0 && n < boxes().length;
    }
    if (n) {
        const selected = document.querySelector("input[name='scope'][value='selected']");
        if (selected) selected.checked = true;
    }
}

function select(box, to = !box.checked) {
    box.checked = to;
    count();
}

// Keys.

const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    x: () => {
        const box = document.querySelector("tr.at input[name='keys']");
        if (box) select(box);
    },
    Enter: () => document.querySelector("tr.at a")?.click(),
    "/": () => document.getElementById("filter")?.select(),
    n: () => document.querySelector("a[rel='next']")?.click(),
    b: () => document.querySelector("a[rel='prev']")?.click(),
    p: pause,
    u: () => document.querySelector("a.brand").click(),
    "?": () => help.showModal(),
    Escape: () => {
        boxes().forEach((box) => select(box, false));
        rows().forEach((row) => row.classList.remove("at"));
        document.activeElement?.blur();
    },
};

document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input:not([type='checkbox'], [type='radio']), select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (field && event.key !== "Escape") return;
    if (event.key === "Enter" && event.target.closest("a, button, input")) return;
    const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
});

document.addEventListener("change", (event) => {
    if (event.target.name === "keys") count();
    if (event.target.id === "all") boxes().forEach((box) => select(box, event.target.checked));
});
document.addEventListener("visibilitychange", follow);
updates.addEventListener("click", pause);
document.getElementById("help-button").addEventListener("click", () => help.showModal());
document.getElementById("help-button").hidden = false;
updates.hidden = !part;
if (document.getElementById("all")) document.getElementById("all").hidden = false;
count(); // the browser keeps the boxes of a page to which its user goes back
follow();
