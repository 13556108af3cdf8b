//! One call, as the protocol sees it.

use std::rc::Rc;
use std::task::Waker;

use crate::bounds::STREAM_WINDOW;
use crate::head::Head;

/// What a call is called on its connection.
pub type StreamId = u32;

/// A name and a value.
pub type Field<'f> = (&'f [u8], &'f [u8]);

/// What comes behind data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then<'f> {
    /// More.
    More,
    /// Nothing.
    End,
    /// These fields, and then nothing.
    Trailers(&'f [Field<'f>]),
}

/// Somebody who wants to know whether an answer was sent. Dropped, it was not: the client is gone, or took it back.
pub trait Delivery: std::fmt::Debug {
    /// It is on its way: it was written.
    fn delivered(self: Box<Self>);
}

/// A call. `T` is whatever its server has to remember of it.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    /// What it says of itself, and what its server remembers of it; nothing once it is answered.
    pub(crate) head: Option<Rc<Head>>,
    pub(crate) state: T,
    /// The client has said everything.
    pub(crate) is_heard: bool,
    /// Everything was said to the client, or waits in `waiting`.
    pub(crate) is_answered: bool,
    /// How much more may come, and what came and was not released.
    pub(crate) receives: u32,
    pub(crate) unreleased: u32,
    /// How much more has to come, if the client said so.
    pub(crate) awaits: Option<u64>,
    /// How much was sent less than was made room for, beyond the window that every call begins with.
    pub(crate) room: i64,
    pub(crate) waiting: Option<Box<Waiting>>,
    /// Who waits until nothing waits.
    pub(crate) waker: Option<Waker>,
}

impl<T> Stream<T> {
    pub(crate) fn new(head: Rc<Head>, state: T, is_heard: bool) -> Self {
        let awaits = head.content_length;
        Self {
            head: Some(head),
            state,
            is_heard,
            is_answered: false,
            receives: STREAM_WINDOW,
            unreleased: 0,
            awaits,
            room: 0,
            waiting: None,
            waker: None,
        }
    }
}

/// What the client has no room for yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) data: Vec<u8>,
    /// How much of it was sent.
    pub(crate) sent: usize,
    /// What comes behind it: nothing yet, the end, or these fields.
    pub(crate) then: WaitingThen,
    pub(crate) delivery: Option<Box<dyn Delivery>>,
    /// It stands in the line of those who only wait for the connection's window.
    pub(crate) is_in_line: bool,
}

/// A name and a value, kept.
type OwnField = (Box<[u8]>, Box<[u8]>);

#[derive(Debug, Default)]
pub(crate) enum WaitingThen {
    #[default]
    More,
    End,
    Trailers(Vec<OwnField>),
}

impl From<Then<'_>> for WaitingThen {
    fn from(then: Then<'_>) -> Self {
        match then {
            Then::More => Self::More,
            Then::End => Self::End,
            Then::Trailers(fields) => {
                Self::Trailers(fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
            }
        }
    }
}
