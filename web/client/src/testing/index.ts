// Tests of programs that use the client: a fake server, and time that moves when told to.

export { VirtualClock } from './clock.js';
export { FakeServer, type Backup, type FakeServerOptions, type Place, type PlaceOptions }
  from './fake.js';
export { Link, type Fault, type Instead } from './network.js';
export { VirtualPage } from './page.js';
export { Refusal } from './server/refusal.js';
export { VirtualTabs } from './tabs.js';
