// @tidemark/client: messages that are stored, acknowledged and read, over every transport.

export { createClient } from './client.js';
export { watchShown } from './watch.js';
export { memoryStore } from './store/memory.js';
export { TidemarkError, codeOf, signedOut } from './errors.js';
export type * from './types.js';
export type {
  Attachment, Block, Chat, CreateChat, DeliveryStatus, Mentions, Message, NewMentions, Pin,
  ReceiptsSettings, StatusUpdate,
} from './wire.gen.js';
