//! `/json`: the protocol of RLS as JSON, in the form that protobuf has for it.

use std::sync::LazyLock;

use prost_reflect::prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};

use crate::node::{Asker, Core, Standing};
use crate::rls::beside::DESCRIBED;

/// What `proto/` says of the messages; none if it cannot be read, which a test would show.
static MESSAGES: LazyLock<Option<[MessageDescriptor; 2]>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIBED).ok()?;
    let message = |name: &str| pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
    Some([message("RateLimitRequest")?, message("RateLimitResponse")?])
});

/// Answers a body: a status and a body. All that goes wrong is 400 there.
pub(crate) async fn answer(core: &Core, body: &[u8], asker: &Asker<'_>) -> (u16, Vec<u8>) {
    decided(core, body, asker).await.unwrap_or_else(|| (400, b"Bad Request\n".to_vec()))
}

async fn decided(core: &Core, body: &[u8], asker: &Asker<'_>) -> Option<(u16, Vec<u8>)> {
    let [request, response] = MESSAGES.as_ref()?;
    let message = read(request, body)?;
    let mut out = Vec::new();
    let answered = core.should_rate_limit(&message, Standing::Outside, asker, &mut out).await;
    if let (Err(error), Some(stand_in)) = (&answered, &core.node.stand_in) {
        stand_in.failed(error);
    }
    let answered = answered.ok()?;
    let said = DynamicMessage::decode(response.clone(), &out[..]).ok()?;
    let mut text = serde_json::Serializer::new(Vec::new());
    said.serialize_with_options(&mut text, &SerializeOptions::new()).ok()?;
    Some((if answered.admitted { 200 } else { 429 }, text.into_inner()))
}

/// The bytes of a message that came as JSON.
fn read(request: &MessageDescriptor, body: &[u8]) -> Option<Vec<u8>> {
    let mut text = serde_json::Deserializer::from_slice(body);
    let options = DeserializeOptions::new();
    let message = DynamicMessage::deserialize_with_options(request.clone(), &mut text, &options).ok()?;
    text.end().ok()?;
    Some(message.encode_to_vec())
}
