// @ts-check
/** Whether the pointer has really moved: a page that changes under it sends events, too. */

/** Where the pointer was last seen, in CSS pixels, and the event with which it last moved. */
const pointer = { x: NaN, y: NaN, /** @type {Event | null} */ moved: null };

/**
 * Remember where the pointer is. A page that changes under a pointer at rest sends events too,
 * from the same place: they count as no movement.
 * @param {PointerEvent} event
 */
function notice(event) {
  const { clientX: x, clientY: y } = event;
  if (x !== pointer.x || y !== pointer.y) Object.assign(pointer, { x, y, moved: event });
}

if (typeof document !== "undefined") {
  for (const name of ["pointermove", "pointerdown"]) {
    const listener = /** @type {EventListener} */ (notice);
    document.addEventListener(name, listener, { capture: true, passive: true });
  }
}

/**
 * Whether the pointer has really moved with this event.
 * @param {PointerEvent} event
 * @returns {boolean}
 */
export const hasMoved = (event) => event === pointer.moved;

/** Whether the pointer has left its last place. @param {PointerEvent} event */
const isElsewhere = ({ clientX, clientY }) => clientX !== pointer.x || clientY !== pointer.y;

/**
 * Act when the pointer leaves an element; if the element has slid away, when the pointer moves on.
 * @param {HTMLElement} el @param {() => void} act
 */
export function onLeave(el, act) {
  const away = (/** @type {PointerEvent} */ event) => {
    if (!el.contains(/** @type {Node} */ (event.target))) act();
  };
  el.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return;
    if (isElsewhere(event)) act();
    else document.addEventListener("pointermove", away, { once: true });
  });
}
