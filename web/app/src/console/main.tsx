import { render } from 'preact';
import { applyTheme } from '../theme';
import { Console } from './Console';

applyTheme();
const root = document.getElementById('root');
if (root) render(<Console />, root);
