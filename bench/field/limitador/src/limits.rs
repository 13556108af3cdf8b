//! What it goes by: a limit for each domain, for each user.

use limitador::limit::{Expression, Limit};

/// Finds the user in the list of descriptors.
const USER: &str = "descriptors[0].user";

/// From `DOMAIN=AMOUNT/SECONDS`.
pub(crate) fn parse(text: &str) -> Result<Limit, String> {
    let wrong = || format!("a limit is `DOMAIN=AMOUNT/SECONDS`, not `{text}`");
    let (domain, rate) = text.split_once('=').ok_or_else(wrong)?;
    let (amount, seconds) = rate.split_once('/').ok_or_else(wrong)?;
    let (amount, seconds) = (amount.parse().map_err(|_| wrong())?, seconds.parse().map_err(|_| wrong())?);
    let user = Expression::parse(USER).map_err(|error| error.to_string())?;
    Ok(Limit::new(domain, amount, seconds, [], [user]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_from_a_word() {
        let limit = parse("tight=1000/1").expect("a limit");
        assert_eq!((limit.namespace().as_ref(), limit.max_value(), limit.seconds()), ("tight", 1_000, 1));
        for word in ["tight", "tight=1000", "tight=x/1", "tight=1/y"] {
            assert!(parse(word).is_err_and(|message| message.contains(word)), "{word}");
        }
    }
}
