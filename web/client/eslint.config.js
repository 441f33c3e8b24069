import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['src/wire.gen.ts', 'test/fixtures'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // Numbers and booleans in messages are fine.
      '@typescript-eslint/restrict-template-expressions': [
        'error', { allowNumber: true, allowBoolean: true },
      ],
    },
  },
  {
    // The client takes everything from its Platform, so that the simulation runs what ships.
    files: ['src/client.ts', 'src/core/**', 'src/shell/**', 'src/wire/**'],
    ignores: ['src/shell/surroundings.ts'],
    rules: {
      'no-restricted-globals': ['error', 'setTimeout', 'setInterval', 'clearTimeout',
        'queueMicrotask', 'fetch', 'WebSocket', 'EventSource', 'document', 'window', 'navigator',
        'location', 'performance', 'crypto', 'localStorage', 'indexedDB', 'globalThis', 'console'],
      'no-restricted-syntax': ['error',
        { selector: "MemberExpression[object.name='Date']", message: 'Use Platform.now.' },
        { selector: "NewExpression[callee.name='Date'][arguments.length=0]",
          message: 'Use Platform.now.' },
        { selector: "MemberExpression[object.name='Math'][property.name='random']",
          message: 'Use Platform.random.' },
        { selector: "MemberExpression[object.name='AbortSignal'][property.name='timeout']",
          message: 'Use Platform.timer.' }],
    },
  },
);
