//! What the node goes by: a thousand rules in ten domains, for each user of a route a limit.

use std::path::Path;

pub(crate) const DOMAINS: u32 = 10;
pub(crate) const ROUTES: u32 = 100;
/// The route that every fiftieth is like: a limit so low that the load of the bench reaches it.
pub(crate) const TIGHT: u32 = 7;
const TIGHT_EVERY: u32 = 50;
/// What a user has on such a route.
pub(crate) const TIGHT_AMOUNT: u32 = 5;

pub(crate) fn domain(number: u32) -> String {
    format!("shop-{number}")
}

pub(crate) fn route(number: u32) -> String {
    format!("GET /items/{number:03}")
}

/// Writes a file for each domain.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("rules cannot be written to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(wrong)?;
    for number in 0..DOMAINS {
        std::fs::write(folder.join(format!("shop-{number}.yaml")), text(number)).map_err(wrong)?;
    }
    Ok(())
}

fn text(number: u32) -> String {
    let mut text = format!("domain: {}\ndescriptors:\n", domain(number));
    for route in 0..ROUTES {
        // The default algorithm and a bucket in turn, as somebody has who uses both.
        let limit = match route {
            _ if route % TIGHT_EVERY == TIGHT => format!("{TIGHT_AMOUNT}/1d"),
            _ if route % 2 == 0 => "1000/1h".into(),
            _ => "50/1s, algorithm: token_bucket, burst: 100".into(),
        };
        text += &format!(
            "  - key: route\n    value: \"{}\"\n    descriptors:\n      - {{ key: user, rate_limit: {{ limit: {limit} }} }}\n",
            self::route(route)
        );
    }
    text
}
