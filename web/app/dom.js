// Small helpers for the DOM. Text from outside is inserted as text, never as markup.

/** Returns an element with text, attributes and children. It leaves out undefined attributes. */
export function el(tag, { text, on = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(name, value);
  }
  for (const [type, listener] of Object.entries(on)) element.addEventListener(type, listener);
  element.append(...children);
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Fills an avatar with the first letter of a name, in a colour derived from the name. */
export function paintAvatar(element, name) {
  let hue = 0;
  for (const c of name) hue = (hue * 31 + c.codePointAt(0)) % 6;
  element.dataset.hue = hue;
  element.textContent = Array.from(name)[0]?.toUpperCase() ?? '?';
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const calendar = new Intl.DateTimeFormat(undefined, {
  weekday: 'short', day: 'numeric', month: 'short',
});

export function timeOf(date) {
  return clock.format(date);
}

export function dayOf(date) {
  const today = new Date();
  return date.toDateString() === today.toDateString() ? 'Today' : calendar.format(date);
}
