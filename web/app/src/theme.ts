// Light, dark, or as the system is.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'tidemark.theme';

export function theme(): Theme {
  const saved = localStorage.getItem(KEY);
  return saved === 'light' || saved === 'dark' ? saved : 'system';
}

export function setTheme(wanted: Theme): void {
  if (wanted === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, wanted);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset['theme'] = theme();
}
