import { render } from 'preact';
import { App } from './App';
import { applyTheme } from './theme';

applyTheme();
const root = document.getElementById('root');
if (root) render(<App />, root);

// Not before the page is there: its files are then loaded from the browser's cache.
if ('serviceWorker' in navigator) {
  window.addEventListener('load', () => {
    navigator.serviceWorker.register('/sw.js').catch(() => {
      // Without it the page only needs a network to open.
    });
  });
}
