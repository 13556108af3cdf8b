//! A connection that somebody works with.

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool};

use crate::error::Result;

/// A connection of a pool. It goes back when it is given back; in any other case, such as when the deadline passed, it is closed: nobody
/// knows what it is in the middle of, and to a server that hangs it would be lost to the pool for as long as that does.
pub(crate) struct Held<D: Database>(Option<PoolConnection<D>>);

impl<D: Database> Held<D> {
    pub(crate) async fn of(pool: &Pool<D>) -> Result<Self> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    /// None: it was given back.
    pub(crate) fn connection(&mut self) -> Option<&mut D::Connection> {
        self.0.as_deref_mut()
    }

    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<D: Database> Drop for Held<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
