// The few names of React that virtua uses, on Preact. With preact/compat the page would be 1.4 KiB
// larger.

import {
  Component, createElement, options, type ComponentChild, type ComponentType, type Ref,
} from 'preact';

export {
  useEffect, useImperativeHandle, useLayoutEffect, useMemo, useReducer, useRef,
} from 'preact/hooks';

/** A component that is drawn again only if a property is another one. */
export function memo<P extends object>(Drawn: ComponentType<P>): ComponentType<P> {
  return class extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const [old, now] = [this.props, next].map((props) => Object.entries(props));
      return old?.length !== now?.length ||
        !!now?.some(([name, value]) => !Object.is(this.props[name as keyof P], value));
    }

    override render(): ComponentChild {
      return createElement(Drawn, this.props);
    }
  };
}

/** Preact gives `ref` to functions as a property. */
export function forwardRef<T, P extends object>(
  draw: (props: P, ref: Ref<T> | null) => ComponentChild,
) {
  return ({ ref = null, ...props }: P & { ref?: Ref<T> | null }) => draw(props as P, ref);
}

/** Runs a step, and then draws at once what it has changed. */
export function flushSync(step: () => void): void {
  let draw: (() => void) | undefined;
  options.debounceRendering = (scheduled) => { draw = scheduled; };
  try {
    step();
    draw?.();
  } finally {
    delete options.debounceRendering;
  }
}

// A number in a style means pixels to virtua. Preact does not take it.
options.vnode = ({ props }) => {
  const { style } = props as { style?: Record<string, unknown> };
  if (typeof style !== 'object') return;
  for (const [name, value] of Object.entries(style)) {
    if (typeof value === 'number') style[name] = `${value}px`;
  }
};
