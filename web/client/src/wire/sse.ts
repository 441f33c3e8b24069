// A parser of Server-Sent Events (HTML standard, section 9.2.6).

/** A part of the stream: an event, a time to come back, or a sign of life. */
export interface Part {
  /** The `id:` of this event itself. It is absent for an ephemeral event. */
  id?: string;
  type?: string;
  data?: string;
  /** Milliseconds. */
  retry?: number;
}

/**
 * Returns a function that takes the stream piece by piece, and returns the parts that are whole.
 * What a cut leaves is never a part.
 */
export function sseParser(): (text: string) => Part[] {
  let rest = '';
  let part: Part = {};
  return (text) => {
    const parts: Part[] = [];
    rest += text;
    // A carriage return at the end may be half of a line end.
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [, field, value = ''] = /^([^:]*)(?:: ?([^]*))?$/.exec(line) ?? [];
      if (line === '') {
        if (part.data !== undefined) parts.push(part);
        part = {};
      } else if (field === 'id' || field === 'data') {
        const more = field === 'data' && part.data !== undefined;
        part[field] = more ? `${part.data}\n${value}` : value;
      } else if (field === 'event') {
        part.type = value;
      } else if (field === 'retry' && /^\d+$/.test(value)) {
        parts.push({ retry: Number(value) });
      } else {
        parts.push({});
      }
    }
    return parts;
  };
}
