// The page's own behaviour: choice of axes, legends that agree, downloads, copying, and figures that print sharp.
"use strict";
(() => {
  const figures = () => (typeof Bokeh === "undefined" ? [] : Bokeh.documents.flatMap((doc) => doc.roots()));
  const under = (key) => figures().filter((figure) => figure.tags.includes(key));

  function againstColumn(figure, column, label) {
    for (const renderer of figure.renderers) renderer.glyph.x = { field: column };
    for (const axis of figure.below) if ("axis_label" in axis) axis.axis_label = label;
    refit(figure.x_range);
  }

  // Every figure has a linear and a logarithmic axis on each side, of which one is visible.
  function setLog(figure, side, log) {
    const [name, range] = side === "below" ? ["x_scale", figure.x_range] : ["y_scale", figure.y_range];
    const isLog = (axis) => axis.type === "LogAxis";
    const axes = figure[side].filter((axis) => axis.type === "LogAxis" || axis.type === "LinearAxis");
    for (const axis of axes) axis.visible = isLog(axis) === log;
    for (const grid of figure.center)
      if (grid.type === "Grid" && axes.includes(grid.axis)) grid.visible = isLog(grid.axis) === log;
    range.scale_hint = log ? "log" : "auto";
    const Scale = Bokeh.Models.get(log ? "LogScale" : "LinearScale");
    figure[name] = new Scale();
    refit(range);
  }

  function refit(range) {
    range.have_updated_interactively = false;
    range.reset();
  }

  for (const select of document.querySelectorAll("[data-x-of]"))
    select.addEventListener("change", () => {
      const label = select.selectedOptions[0].dataset.label;
      for (const figure of under(select.dataset.xOf)) againstColumn(figure, select.value, label);
    });
  for (const box of document.querySelectorAll("[data-log-x-of]"))
    box.addEventListener("change", () => {
      for (const figure of under(box.dataset.logXOf)) setLog(figure, "below", box.checked);
    });
  for (const box of document.querySelectorAll("[data-log-y-of]"))
    box.addEventListener("change", () => {
      for (const figure of under(box.dataset.logYOf))
        if (!figure.tags.includes("linear-y")) setLog(figure, "left", box.checked);
    });

  for (const button of document.querySelectorAll("[data-download]"))
    button.addEventListener("click", () => {
      const { filename, text } = JSON.parse(button.parentElement.querySelector("script").textContent);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff" + text], { type: "text/csv;charset=utf-8" }));
      link.download = filename;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  for (const button of document.querySelectorAll("[data-copy]"))
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre");
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = "Selected: now copy";
      }
    });

  // A curve hidden by one legend is hidden in every figure under the same controls.
  function linkLegends() {
    const groups = new Map();
    for (const figure of figures())
      for (const renderer of figure.renderers) {
        if (!renderer.name || !figure.tags.length) continue;
        const key = JSON.stringify([figure.tags[0], renderer.name, renderer.glyph.type]); // a curve, or its band
        groups.set(key, [...(groups.get(key) ?? []), renderer]);
      }
    for (const renderers of groups.values())
      for (const renderer of renderers)
        renderer.properties.visible.change.connect(() => {
          for (const other of renderers) other.visible = renderer.visible;
        });
  }

  function whenDrawn() {
    if (typeof Bokeh === "undefined") return;
    if (!figures().length) return void setTimeout(whenDrawn, 30);
    linkLegends();
    if (matchMedia("(pointer: coarse)").matches)
      for (const figure of figures()) figure.toolbar.active_drag = null; // a finger scrolls the page
    document.documentElement.dataset.ready = "";
  }
  whenDrawn();

  // Paper gets every figure as a vector drawing, scaled to the column.
  const unfolded = [];
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.printed:not([open])")) {
      details.open = true;
      unfolded.push(details);
    }
    for (const place of document.querySelectorAll(".bokeh")) {
      const view = Bokeh.index.get_by_id(place.dataset.rootId);
      const drawing = view.export("svg").canvas;
      const { width, height } = view.bbox;
      drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
      drawing.removeAttribute("width");
      drawing.removeAttribute("height");
      place.after(drawing);
    }
  });
  addEventListener("afterprint", () => {
    for (const drawing of document.querySelectorAll("figure > svg")) drawing.remove();
    for (const details of unfolded.splice(0)) details.open = false;
  });
})();
