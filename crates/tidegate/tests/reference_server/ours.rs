//! Ours beside the reference server.

use std::collections::BTreeMap;

use prost::Message as _;
use serde_json::json;
use tidegate_testbed::{Kind, Options, Server};

use crate::differences::DIFFERENCES;
use crate::play::{Game, play};
use crate::rules::{MARKER, marker_text};
use crate::servers::{Files, Program, Running, Variables};
use crate::support::grpc::SHOULD_RATE_LIMIT;
use crate::support::messages::Response;
use crate::support::{asks, descriptor};

const STEPS: usize = 150;

/// How both are set up, and the numbers that the rules and requests are drawn from.
const SETUPS: &[(Variables<'_>, &[u64])] = &[
    (&[], &[11, 12, 13]),
    (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("RESPONSE_DYNAMIC_METADATA", "true")], &[21, 22]),
    (&[("SHADOW_MODE", "true"), ("NEAR_LIMIT_RATIO", "0.5")], &[31]),
    (&[("QUOTA_MODE", "true"), ("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], &[41]),
];

/// Every difference in an answer, a counter or a stat is in the list; and every row of the list is needed, so that none outlives its
/// reason.
#[tokio::test]
async fn ours_does_what_the_reference_server_does() {
    let Some(theirs) = Program::reference() else { return };
    let ours = Program::ours();
    let (mut found, mut compared, mut skipped) = (Vec::new(), 0, 0);
    let mut applied: BTreeMap<&str, usize> = DIFFERENCES.iter().map(|row| (row.name, 0)).collect();
    for (variables, seeds) in SETUPS {
        for seed in *seeds {
            let game = Game {
                theirs: &theirs,
                ours: &ours,
                seed: *seed,
                steps: STEPS,
                variables,
                own_variables: &[],
                differences: DIFFERENCES,
            };
            let report = play(&game).await;
            found.extend(report.found);
            compared += report.compared;
            skipped += report.skipped;
            report.applied.iter().for_each(|(name, count)| *applied.entry(name).or_default() += count);
        }
    }
    assert!(found.is_empty(), "{} differences:\n\n{}", found.len(), found.join("\n\n"));
    assert!(compared >= STEPS, "{compared} compared, {skipped} skipped");
    let idle: Vec<&str> = applied.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    assert!(idle.is_empty(), "rows that no step needed: {idle:?}");
}

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
