//! Bodies of requests: read whole, up to a bound, and not for ever.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::error::HttpError;

/// The largest body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest that one may take.
const BODY_MAX: Duration = Duration::from_secs(5);

pub(super) async fn read(body: Incoming) -> Result<Bytes, HttpError> {
    let too_large = || HttpError::too_large(format!("the body may have {BODY_BYTES_MAX} bytes"));
    // Refused before it is sent, where its length is said.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match timeout(BODY_MAX, whole(Limited::new(body, BODY_BYTES_MAX))).await {
        Err(_) => Err(HttpError::too_slow()),
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(HttpError::invalid(format!("the body cannot be read: {error}"))),
    }
}

/// All of a body. One that comes in one piece, as most do, is not copied.
async fn whole(mut body: Limited<Incoming>) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}
