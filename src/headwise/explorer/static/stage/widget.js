// @ts-check
/** The stage in a notebook, as an anywidget; with a table only, the grid of heads. */

/** @import {WidgetModel} from "./widget_host.js" */

import { groundTheme, watchTheme } from "./host_theme.js";
import { saveFile } from "./save_file.js";
import { TableView } from "./table_view.js";
import { mount } from "./view.js";
import { Requests, WidgetState, widgetHost } from "./widget_host.js";

/**
 * Show the widget inside an element; returns a function that removes it.
 * @param {{model: WidgetModel, el: HTMLElement}} widget
 */
export function render({ model, el }) {
  const state = new WidgetState(model);
  const requests = new Requests(model);
  const box = document.createElement("div");
  box.className = "hw-widget";
  box.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take E, S and the arrows
  el.append(box);
  let now = groundTheme(el);
  box.dataset.theme = now;
  const theme = () => now;
  const host = model.get("text") && widgetHost(model, state, requests, theme, saveFile);
  const table = model.get("table");
  const stop = host
    ? mount(host, box)
    : (
        (view) => () =>
          view.destroy()
      )(new TableView(box, model.get("about"), table, state, theme));
  const unwatch = watchTheme(() => {
    const next = groundTheme(el);
    if (next === now) return;
    now = next;
    box.dataset.theme = now;
    state.emit(new Set(["theme"]));
  });
  return () => {
    unwatch();
    stop();
    state.destroy();
    requests.destroy();
    box.remove();
  };
}
