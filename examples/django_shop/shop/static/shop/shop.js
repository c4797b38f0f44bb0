"use strict";

const list = document.getElementById("orders");
const counts = document.getElementById("counts");
const token = document.querySelector("[name=csrfmiddlewaretoken]").value;

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function row(order) {
  const made = element("li", "");
  made.dataset.number = order.number;
  made.append(element("span", order.what, "what"));
  made.append(element("span", order.status, `status ${order.status}`));
  if (order.invoiced) {
    const link = element("a", "invoice");
    link.href = `/invoices/${order.number}`;
    made.append(link);
  }
  if (["new", "later", "failed"].includes(order.status)) {
    const button = element("button", "cancel", "cancel");
    button.onclick = () => fetch(`/orders/${order.number}/cancel`, {method: "POST", headers: {"X-CSRFToken": token}});
    made.append(button);
  }
  if (order.status === "failed") made.append(element("p", order.error, "error"));
  return made;
}

async function show() {
  const shown = await (await fetch(list.dataset.orders)).json();
  const text = JSON.stringify(shown);
  if (text !== show.last) {
    list.replaceChildren(...shown.orders.map(row));
    counts.replaceChildren(...Object.entries(shown.counts).map(([status, n]) => {
      const made = element("li", "");
      made.append(element("b", n), element("span", status, `status ${status}`));
      return made;
    }));
    show.last = text;
  }
}

async function showForEver() {
  await show().catch(() => {});  // the shop may be closed for a moment
  setTimeout(showForEver, 500);
}

showForEver();
