//! Instants, as people and other programs write them.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

/// An instant in RFC 3339, UTC when it is told. Inside, microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2025-02-01T00:00:00Z")]
pub(crate) struct When(pub(crate) i64);

impl When {
    pub(crate) fn read(said: &str) -> Result<Self, String> {
        let read = said.parse::<Timestamp>();
        read.map(|at| Self(at.as_microsecond()))
            .map_err(|_| format!("`{said}` is no time such as 2025-02-01T00:00:00Z"))
    }

    pub(crate) fn text(self) -> String {
        // Nothing is kept that jiff cannot tell; a counter's window may be.
        Timestamp::from_microsecond(self.0).map_or_else(|_| self.0.to_string(), |at| at.to_string())
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let said = String::deserialize(from)?;
        Self::read(&said).map_err(de::Error::custom)
    }
}
