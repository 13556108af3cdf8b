//! Calls, encoded before anything is measured.

use crate::messages::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::mix::Random;
use crate::speech::Speech;

/// Before a message of gRPC stand a byte that says whether it is compressed, and four for its length.
pub const PREFIX_BYTES: usize = 5;

/// Encoded requests, in the order in which they are sent.
#[derive(Default)]
pub struct Requests {
    speech: Speech,
    bytes: Vec<u8>,
    /// Where each ends: beyond 4 GiB too, which ten million of HTTP come near.
    ends: Vec<usize>,
}

impl Requests {
    /// None yet, but what is spoken is known. (By default it is Envoy's protocol.)
    pub fn of(speech: Speech) -> Self {
        Self { speech, ..Self::default() }
    }

    /// What is spoken.
    pub fn speech(&self) -> Speech {
        self.speech
    }

    /// Adds a request of Envoy's protocol with one descriptor, of one unit.
    pub fn push(&mut self, domain: &str, entries: &[(&str, &str)]) {
        self.push_all(domain, &[entries], 0);
    }

    /// Adds one with several descriptors, of so many units; 0 means 1, and is not sent.
    pub fn push_all(&mut self, domain: &str, descriptors: &[&[(&str, &str)]], cost: u32) {
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
        let descriptor =
            |entries: &&[(&str, &str)]| RateLimitDescriptor { entries: entries.iter().map(entry).collect() };
        let descriptors = descriptors.iter().map(descriptor).collect();
        self.push_message(&RateLimitRequest { domain: domain.into(), descriptors, hits_addend: cost });
    }

    /// Adds a request that is a message of gRPC.
    pub fn push_message(&mut self, message: &impl prost::Message) {
        let message = message.encode_to_vec();
        self.bytes.push(0);
        self.bytes.extend((message.len() as u32).to_be_bytes());
        self.push_bytes(&message);
    }

    /// Adds a request of HTTP/1.1 with a body of JSON.
    pub fn push_post(&mut self, path: &str, body: &str) {
        let length = body.len();
        let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length";
        self.push_bytes(format!("POST {path} HTTP/1.1\r\n{head}: {length}\r\n\r\n{body}").as_bytes());
    }

    /// Adds a request of HTTP/1.1 without a body.
    pub fn push_get(&mut self, path: &str) {
        self.push_bytes(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    }

    /// Adds a command of RESP: an array of strings.
    pub fn push_command(&mut self, words: &[&str]) {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.push_bytes(text.as_bytes());
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.ends.push(self.bytes.len());
    }

    /// The call of this number, with its prefix; after the last comes the first.
    pub fn get(&self, number: usize) -> &[u8] {
        let at = number % self.ends.len();
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// So many numbers in the order of a shuffled pack, the same in every run: no cache can guess which comes next.
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut lot = Random(0x9e37_79b9_7f4a_7c15);
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, (lot.next() % (at as u64 + 1)) as usize);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn after_the_last_comes_the_first() {
        let mut requests = Requests::default();
        requests.push("shop", &[("user", "a")]);
        requests.push("shop", &[("user", "b"), ("route", "c")]);
        assert_eq!((requests.len(), requests.get(2)), (2, requests.get(0)));
        let bytes = requests.get(1);
        let message = RateLimitRequest::decode(&bytes[PREFIX_BYTES..]).expect("a request");
        assert_eq!(bytes[1..PREFIX_BYTES], (message.encoded_len() as u32).to_be_bytes());
        assert_eq!(message.descriptors[0].entries[1].value, "c");
    }

    #[test]
    fn a_request_may_have_several_descriptors_and_a_cost() {
        let mut requests = Requests::default();
        requests.push_all("shop", &[&[("user", "a")], &[("user", "b"), ("route", "c")]], 7);
        let message = RateLimitRequest::decode(&requests.get(0)[PREFIX_BYTES..]).expect("a request");
        let values = |at: usize| {
            let entries = &message.descriptors[at].entries;
            entries.iter().map(|entry| &*entry.value).collect::<Vec<_>>()
        };
        assert_eq!((message.hits_addend, values(0), values(1)), (7, vec!["a"], vec!["b", "c"]));
    }

    #[test]
    fn a_command_says_how_many_words_it_has_and_how_long_they_are() {
        let mut requests = Requests::of(Speech::Resp);
        requests.push_command(&["THROTTLE", "ü", ""]);
        assert_eq!(requests.get(0), "*3\r\n$8\r\nTHROTTLE\r\n$2\r\nü\r\n$0\r\n\r\n".as_bytes());
    }

    #[test]
    fn a_shuffled_pack_has_every_number_once() {
        let mut numbers = shuffled(1_000);
        assert_ne!(numbers[..3], [0, 1, 2]);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1_000));
    }
}
