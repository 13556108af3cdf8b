//! Ours beside the reference server.

use prost::Message as _;
use serde_json::json;
use tidegate_testbed::{Kind, Options, Server};

use crate::rules::{MARKER, marker_text};
use crate::servers::{Files, Program, Running};
use crate::support::grpc::SHOULD_RATE_LIMIT;
use crate::support::messages::Response;
use crate::support::{asks, descriptor};

/// While a fleet changes over, nodes of both kinds count on one number: of one limit no more and no less is admitted than by either.
#[tokio::test]
async fn a_fleet_of_both_shares_its_limits() {
    let Some(theirs) = Program::reference() else { return };
    let redis = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    // A year ends so rarely that no test has to look for it.
    let limit = json!({"unit": "year", "requests_per_unit": 10});
    let rules = json!({"domain": "shop", "descriptors": [{"key": "user", "rate_limit": limit}]});
    let files = Files::write(&[("shop", rules.to_string()), (MARKER, marker_text())]);
    let theirs = Running::start(&theirs, &files, redis.address(), "fleet:", &[]).await;
    let ours = Running::start(&Program::ours(), &files, redis.address(), "fleet:", &[]).await;
    let request = asks("shop", [descriptor(&[("user", "alice")])]);
    let mut told = Vec::new();
    for number in 0..14 {
        let server = if number % 3 == 0 { &theirs } else { &ours };
        let answer = server.grpc.call(SHOULD_RATE_LIMIT, &request.encode_to_vec(), &[]).await;
        let answer = Response::decode(answer.expect("an answer")).expect("a response");
        told.push((answer.overall_code, answer.statuses[0].limit_remaining));
    }
    let admitted = (0..10).rev().map(|remaining| (1, remaining));
    assert_eq!(told, admitted.chain([(2, 0); 4]).collect::<Vec<_>>());
}
