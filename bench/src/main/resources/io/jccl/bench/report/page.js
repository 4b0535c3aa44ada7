"use strict";
const tip = document.getElementById("tip");
function show(text, e) {
  tip.textContent = text;
  tip.style.display = "block";
  const left = e.clientX + 14, top = e.clientY + 14;
  tip.style.left = Math.max(4, Math.min(left, window.innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, Math.min(top, window.innerHeight - tip.offsetHeight - 4)) + "px";
}
for (const svg of document.querySelectorAll("svg.chart")) {
  const points = [];
  for (const t of svg.querySelectorAll("circle title, .bar title, .mark title")) {
    const shape = t.parentNode;
    shape.dataset.tip = t.textContent;
    t.remove();
    if (shape.tagName === "circle")
      points.push({ x: +shape.getAttribute("cx"), y: +shape.getAttribute("cy"), shape: shape });
  }
  const plot = svg.querySelector(".plot");
  let guide = null;
  function hide() {
    tip.style.display = "none";
    if (guide) { guide.remove(); guide = null; }
  }
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", e => {
    hide();
    if (e.target.dataset.tip) if (e.target.tagName !== "circle") return show(e.target.dataset.tip, e);
    if (!plot) return;
    const at = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const box = plot.getBBox();
    const inside = [at.x >= box.x - 6, box.x + box.width + 6 >= at.x, at.y >= box.y, box.y + box.height >= at.y];
    const seen = points.filter(p => !p.shape.closest(".off"));
    if (inside.includes(false) || seen.length === 0) return;
    const near = seen.reduce((a, b) => Math.abs(b.x - at.x) >= Math.abs(a.x - at.x) ? a : b);
    const column = seen.filter(p => 0.6 > Math.abs(p.x - near.x)).sort((a, b) => a.y - b.y);
    guide = document.createElementNS("http://www.w3.org/2000/svg", "line");
    guide.setAttribute("class", "guide");
    for (const [k, v] of [["x1", near.x], ["x2", near.x], ["y1", box.y], ["y2", box.y + box.height]])
      guide.setAttribute(k, v);
    svg.append(guide);
    show(column.map(p => p.shape.dataset.tip).join("\n"), e);
  });
  for (const key of svg.querySelectorAll(".key"))
    key.addEventListener("click", () => {
      key.classList.toggle("off");
      for (const c of svg.querySelectorAll(".curve." + key.dataset.k))
        c.classList.toggle("off", key.classList.contains("off"));
    });
}
