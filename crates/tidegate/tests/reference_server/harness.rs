//! The harness itself: the reference server beside itself differs in nothing, and beside one that is set up otherwise in just that.

use crate::play::{Game, Report, play};
use crate::servers::{Program, Variables};

const STEPS: usize = 120;

async fn beside_itself(seed: u64, variables: Variables<'_>, own_variables: Variables<'_>) -> Option<Report> {
    let theirs = Program::reference()?;
    let game = Game {
        theirs: &theirs,
        ours: &theirs,
        seed,
        steps: STEPS,
        variables,
        own_variables,
        differences: &[],
    };
    Some(play(&game).await)
}

#[tokio::test]
async fn the_reference_server_agrees_with_itself() {
    let everything = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("RESPONSE_DYNAMIC_METADATA", "true")];
    for (seed, variables) in [(1, &[][..]), (2, &everything[..])] {
        let Some(report) = beside_itself(seed, variables, &[]).await else { return };
        assert!(report.found.is_empty(), "{}", report.found.join("\n\n"));
        assert!(report.compared >= STEPS / 4, "{} compared, {} skipped", report.compared, report.skipped);
    }
}

/// Each of these has to be found, in the part where it shows.
#[tokio::test]
async fn what_is_set_up_otherwise_is_found() {
    let headers = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true")];
    for (own, part) in [
        (("NEAR_LIMIT_RATIO", "0.3"), "near_limit"),
        (("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"), "counters"),
        (("EXPIRATION_JITTER_MAX_SECONDS", "90000"), "is kept for"),
        (("LIMIT_RESET_HEADER", "reset"), "answer"),
        (("SHADOW_MODE", "true"), "answer"),
    ] {
        let Some(report) = beside_itself(3, &headers, &[own]).await else { return };
        assert!(report.found.iter().any(|text| text.contains(part)), "{own:?}: {:#?}", report.found);
    }
}
