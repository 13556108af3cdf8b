//! The secrets by which calls from inside are known: read from a file, and again when it changes, so that they can be changed one service
//! at a time.

use std::io;
use std::sync::Arc;

use tidegate_config::{Settings, Watch};
use tidegate_server::{InternalCalls, Node};

use super::StartError;

/// Reads the secrets, if there is a file.
pub(super) fn load(settings: &Settings) -> Result<Option<InternalCalls>, StartError> {
    let Some(path) = &settings.internal.secrets_file else { return Ok(None) };
    let wrong = |why: String| StartError::Secrets { path: path.clone(), why };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let calls = InternalCalls::of_text(&text, settings.internal.max_age);
    calls.map(Some).map_err(|error| wrong(error.to_string()))
}

/// Reads them again when they change. Secrets that cannot be read change nothing.
pub(super) fn follow(node: &Arc<Node>, settings: &Settings) -> Option<io::Result<Watch>> {
    let path = settings.internal.secrets_file.clone()?;
    let (node, settings) = (Arc::downgrade(node), settings.clone());
    Some(Watch::start(vec![path], move || {
        let Some(node) = node.upgrade() else { return };
        match (load(&settings), &node.internal_calls) {
            (Ok(Some(calls)), Some(current)) => {
                current.store(Arc::new(calls));
                tracing::info!("secrets of internal calls loaded");
            }
            (Err(error), _) => {
                tracing::error!(%error, "secrets of internal calls not loaded; the old ones stay")
            }
            _ => {}
        }
    }))
}
