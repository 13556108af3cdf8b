//! How much of everything there may be on one connection.

/// How many calls may be in flight. More are refused, and may be tried again.
pub const STREAMS_MAX: usize = 1_024;
/// How many calls the client may take back before they are answered, beyond those that were answered in the meantime. Envoy takes back all
/// its calls at once when a node pauses for longer than its patience; that is no attack.
pub(crate) const RESETS_MAX: usize = 16 * STREAMS_MAX;
/// How many calls may have to be reset because of the client's own mistakes, likewise. The end of a connection fails every call on it, and
/// Envoy lets pass what failed, so a few must not do it.
pub(crate) const MISTAKES_MAX: usize = 8 * STREAMS_MAX;
/// How many of the calls that were answered before the client had said everything are remembered, so that the rest of what it says is no
/// mistake.
pub(crate) const CUT_SHORT_MAX: usize = 1_024;

/// Headers of one request, each with 32 bytes more than its texts, as the protocol counts them. What is larger is refused.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// Headers of all calls that are not answered. What comes beyond that is refused.
pub(crate) const HEADS_BYTES_MAX: usize = 4 << 20;
/// Headers of one request beyond which not even their end is awaited: a few bytes can stand for many.
pub(crate) const HEADER_BYTES_ENDLESS: usize = 4 * HEADER_BYTES_MAX;
/// The same as it is sent. What is larger ends the connection: it would have to be read to the end otherwise.
pub(crate) const BLOCK_BYTES_MAX: usize = 2 * HEADER_BYTES_MAX;
/// Up to which length a block is remembered, and room for one is kept.
pub(crate) const BLOCK_KEPT_BYTES: usize = 4 << 10;
/// In how many frames.
pub(crate) const BLOCK_FRAMES_MAX: usize = 32;
/// What the client's encoder may have us remember.
pub(crate) const TABLE_BYTES_MAX: usize = 4_096;

/// The largest frame: what the protocol has clients send if they are not told otherwise.
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 10;
/// What may come of one call, and of all, until it is released.
pub(crate) const STREAM_WINDOW: u32 = 65_535;
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 20;
/// What the protocol gives a connection to begin with.
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;
/// The largest window.
pub(crate) const WINDOW_MAX: i64 = i32::MAX as i64;

/// How often a client may change its settings: each change looks at every call.
pub(crate) const SETTINGS_MAX: usize = 1_024;

/// What answers may take that the client has no room for. With more, one is not sent at all.
pub(crate) const WAITING_BYTES_MAX: usize = 4 << 20;

/// With so much to be written nothing more should be read: the client does not take its answers.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
