// REST, and who is calling.

const BASE = '/api/v1';

/** An answer >= 400, or none at all (status 0). `final` says that trying again cannot help; `after` is the Retry-After in seconds, 0 if none. */
export class ApiError extends Error {
  constructor(status, code, detail, after = 0) {
    super(detail || code);
    this.name = 'ApiError';
    this.status = status;
    this.code = code;
    this.after = after;
  }

  get final() {
    return this.status >= 400 && this.status < 500 && ![401, 408, 425, 429].includes(this.status);
  }
}

/**
 * The caller. A name is for `serve --dev` only; every other server wants an access token (a JWT), whose
 * `sub` is the user.
 */
export class Caller {
  constructor({ user, token }) {
    this.user = token ? subjectOf(token) : user;
    this.bearer = token || `dev:${user}`;
    this.dev = !token;
  }
}

function subjectOf(token) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    const sub = JSON.parse(atob(part)).sub;
    if (typeof sub === 'string' && sub !== '') return sub;
  } catch {
    // Falls through: whatever is wrong with it, it is not a token.
  }
  throw new Error('This is not an access token: it names no user.');
}

export class Api {
  constructor(caller) {
    this.caller = caller;
  }

  /** Whether the server runs with --dev, where a name is enough. One that cannot be reached is taken for such a one. */
  static async takesNames() {
    try {
      await new Api(new Caller({ user: 'who' })).call('GET', '/chats?limit=1');
      return true;
    } catch (error) {
      return error.status !== 401;
    }
  }

  /** Performs one request; throws ApiError. Nothing is retried here: each caller knows whether it may be. */
  async call(method, path, body, { keepalive = false } = {}) {
    let response;
    try {
      response = await fetch(BASE + path, {
        method,
        keepalive,
        cache: 'no-store',
        headers: {
          Authorization: `Bearer ${this.caller.bearer}`,
          ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: keepalive ? undefined : AbortSignal.timeout(20_000),
      });
    } catch {
      throw new ApiError(0, 'UNREACHABLE', 'The server cannot be reached.');
    }
    let answer = null;
    try {
      answer = response.status === 204 ? null : await response.json();
    } catch {
      if (response.ok) throw new ApiError(0, 'UNREACHABLE', 'The answer was cut off.');
    }
    if (!response.ok) {
      const after = Number(response.headers.get('Retry-After')) || 0;
      throw new ApiError(response.status, answer?.code ?? `HTTP_${response.status}`, answer?.detail ?? response.statusText, after);
    }
    return answer;
  }

  /** All items of a list, page by page. */
  async all(path, name, limit = 200) {
    const items = [];
    let cursor = null;
    do {
      const query = new URLSearchParams({ limit, ...(cursor ? { cursor } : {}) });
      const page = await this.call('GET', `${path}?${query}`);
      items.push(...page[name]);
      cursor = page.pagination.has_more ? page.pagination.next_cursor : null;
    } while (cursor);
    return items;
  }

  chats() {
    return this.all('/chats', 'chats');
  }

  chat(id) {
    return this.call('GET', `/chats/${encodeURIComponent(id)}`);
  }

  members(id) {
    return this.all(`/chats/${encodeURIComponent(id)}/members`, 'members', 1000);
  }

  deliveryStatus(id) {
    return this.call('GET', `/chats/${encodeURIComponent(id)}/delivery-status?limit=50`);
  }

  createChat(request) {
    return this.call('POST', '/chats', request);
  }

  send(chat, message) {
    return this.call('POST', `/chats/${encodeURIComponent(chat)}/messages`, message);
  }

  history(chat, query) {
    return this.call('GET', `/chats/${encodeURIComponent(chat)}/messages?${new URLSearchParams(query)}`);
  }

  acknowledge(chats) {
    return this.call('POST', '/acks', { chats });
  }

  /**
   * Acknowledges while the page goes away. A beacon outlives the page but has no headers, so it needs a ticket,
   * which must be in the hand already; where a ticket has to be asked for, a kept-alive request takes its place.
   */
  acknowledgeOnExit(chats) {
    if (this.caller.dev) {
      const body = new Blob([JSON.stringify({ chats })], { type: 'application/json' });
      navigator.sendBeacon(`${BASE}/acks?ticket=${encodeURIComponent(this.caller.bearer)}`, body);
    } else {
      this.call('POST', '/acks', { chats }, { keepalive: true }).catch(() => {});
    }
  }

  sync(request) {
    return this.call('POST', '/sync', request);
  }

  /** The URL of a new stream, with a fresh ticket: a long-lived token never travels in a URL. */
  async streamURL(position) {
    const ticket = this.caller.dev ? this.caller.bearer : (await this.call('POST', '/tickets', {})).ticket;
    const query = new URLSearchParams({ ticket, ...(position ? { last_event_id: position } : {}) });
    return `${BASE}/events?${query}`;
  }
}
