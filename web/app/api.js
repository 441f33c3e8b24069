// The REST API and the caller's credentials.

const BASE = '/api/v1';

/**
 * An answer with a status of 400 or above, or no answer (status 0). `final` says that a retry
 * cannot help. `after` is the Retry-After in seconds, or 0.
 */
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
 * The caller. A name works with `serve --dev` only. Every other server needs an access token (a
 * JWT), and its `sub` is the user.
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
    // Falls through: the text is not a token.
  }
  throw new Error('This is not an access token: it names no user.');
}

export class Api {
  constructor(caller) {
    this.caller = caller;
  }

  /**
   * Returns whether the server runs with --dev, where a name is enough. If the server cannot be
   * reached, it returns true.
   */
  static async takesNames() {
    try {
      await new Api(new Caller({ user: 'who' })).call('GET', '/chats?limit=1');
      return true;
    } catch (error) {
      return error.status !== 401;
    }
  }

  /** Performs one request, or throws ApiError. It retries nothing: its callers decide that. */
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
      const code = answer?.code ?? `HTTP_${response.status}`;
      throw new ApiError(response.status, code, answer?.detail ?? response.statusText, after);
    }
    return answer;
  }

  /** Returns all items of a list. It reads them page by page. */
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
    const parameters = new URLSearchParams(query);
    return this.call('GET', `/chats/${encodeURIComponent(chat)}/messages?${parameters}`);
  }

  acknowledge(chats) {
    return this.call('POST', '/acks', { chats });
  }

  /**
   * Acknowledges while the page is being closed. A beacon outlives the page, but has no headers, so
   * it needs a ticket, which there is no time to request. With --dev the name is the ticket.
   * Elsewhere a keepalive request takes the place of the beacon.
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

  /** Returns the URL of a new stream, with a new ticket. Long-lived tokens are never in URLs. */
  async streamURL(position) {
    const ticket = this.caller.dev
      ? this.caller.bearer
      : (await this.call('POST', '/tickets', {})).ticket;
    const query = new URLSearchParams({ ticket, ...(position ? { last_event_id: position } : {}) });
    return `${BASE}/events?${query}`;
  }
}
