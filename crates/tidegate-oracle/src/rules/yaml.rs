//! A tree as the rule file that means it, in one of the many ways in which it can be written.

use super::dice::Dice;
use super::tree::{Exempt, Matching, Node, Patch, RuleLimit, RuleTree, Tier};
use crate::duration;
use crate::spec::{Algorithm, Calendar};

/// The windows that have a name.
const UNITS: [(&str, u64); 5] = [
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 86_400_000_000),
    ("week", 604_800_000_000),
];

/// Words that YAML takes for something else than text, in one of its versions.
const NOT_TEXT: [&str; 12] =
    ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];

impl RuleTree {
    /// The tree as a rule file, written in the first way that comes to mind.
    pub fn to_yaml(&self) -> String {
        self.to_yaml_by(&mut Dice::new(Vec::new()))
    }

    /// The tree as a rule file, written in a way that the dice choose.
    pub fn to_yaml_by(&self, dice: &mut Dice) -> String {
        let mut lines = vec![format!("domain: {}", text(dice, &self.domain))];
        match self.matching {
            Matching::Path => lines.push("match: path".to_owned()),
            Matching::Leaf if dice.roll(2) == 1 => lines.push("match: leaf".to_owned()),
            Matching::Leaf => {}
        }
        if self.quota_key != "api_key" || dice.roll(2) == 1 {
            lines.push(format!("quota_key: {}", text(dice, &self.quota_key)));
        }
        lines.extend(flag(dice, "allow_refunds", self.allow_refunds));
        lines.extend(flag(dice, "trust_tier", self.trust_tier));
        lines.extend(flag(dice, "shadow_mode", self.shadow_mode));
        lines.extend(flag(dice, "disabled", self.disabled));
        lines.extend(self.exempt.as_ref().map(|exempt| exempt_line(dice, exempt)));
        if let Some(algorithm) = self.algorithm {
            lines.push(format!("defaults: {{ algorithm: {} }}", algorithm.name()));
        }
        lines.extend(descriptors(dice, &self.descriptors, self.default_algorithm()));
        lines.join("\n") + "\n"
    }
}

fn descriptors(dice: &mut Dice, nodes: &[Node], default: Algorithm) -> Vec<String> {
    if nodes.is_empty() {
        return if dice.roll(2) == 1 { vec!["descriptors: []".to_owned()] } else { Vec::new() };
    }
    let mut lines = vec!["descriptors:".to_owned()];
    for node in nodes {
        let of_node = node_lines(dice, node, default);
        let marked = of_node.iter().enumerate().map(|(at, line)| match at {
            0 => format!("  - {line}"),
            _ => format!("    {line}"),
        });
        lines.extend(marked);
    }
    lines
}

fn node_lines(dice: &mut Dice, node: &Node, default: Algorithm) -> Vec<String> {
    let mut lines = vec![format!("key: {}", text(dice, &node.key))];
    match node.fixed_value() {
        Some(value) => lines.push(format!("value: {}", text(dice, value))),
        None if dice.once_in(4) => lines.push("value: \"\"".to_owned()),
        None => {}
    }
    lines.extend(flag(dice, "share_threshold", node.share_threshold));
    lines.extend(flag(dice, "always", node.always));
    lines.extend(flag(dice, "shadow_mode", node.shadow_mode));
    lines.extend(flag(dice, "quota_mode", node.quota_mode));
    lines.extend(flag(dice, "disabled", node.disabled));
    lines.extend(node.exempt.as_ref().map(|exempt| exempt_line(dice, exempt)));
    match &node.limits[..] {
        [] => {}
        [only] if dice.roll(2) == 0 => lines.push(format!("rate_limit: {}", limit(dice, only))),
        several => lines.extend(limit_list(dice, "rate_limits", several)),
    }
    if !node.tiers.is_empty() {
        lines.push("tiers:".to_owned());
    }
    for (name, tier) in &node.tiers {
        let changed = |patch: &Patch| node.limits.first().map(|only| patch.applied_to(only, default));
        let of_tier = tier_lines(dice, name, tier, changed);
        lines.extend(of_tier.into_iter().map(|line| format!("  {line}")));
    }
    lines.extend(descriptors(dice, &node.descriptors, default));
    lines
}

fn tier_lines(
    dice: &mut Dice,
    name: &str,
    tier: &Tier,
    changed: impl Fn(&Patch) -> Option<RuleLimit>,
) -> Vec<String> {
    let name = text(dice, name);
    match tier {
        Tier::List(limits) if limits.is_empty() => vec![format!("{name}: []")],
        Tier::List(limits) => limit_list(dice, &name, limits),
        Tier::Patch(patch) => {
            vec![format!("{name}: {}", patch_words(dice, patch, changed(patch).as_ref()))]
        }
    }
}

fn limit_list(dice: &mut Dice, name: &str, limits: &[RuleLimit]) -> Vec<String> {
    let items = limits.iter().map(|one| format!("  - {}", limit(dice, one)));
    std::iter::once(format!("{name}:")).chain(items).collect()
}

/// A limit in braces.
fn limit(dice: &mut Dice, limit: &RuleLimit) -> String {
    let mut words = Vec::new();
    if limit.unlimited {
        words.push("unlimited: true".to_owned());
    } else {
        words.extend(how_much(dice, limit));
    }
    words.extend(limit.algorithm.map(|algorithm| format!("algorithm: {}", algorithm.name())));
    words.extend(limit.name.as_ref().map(|name| format!("name: {}", text(dice, name))));
    words.extend(limit.burst.map(|burst| format!("burst: {burst}")));
    words.extend(limit.sub_windows.map(|count| format!("sub_windows: {count}")));
    words.extend(limit.strict.then(|| "strict: true".to_owned()));
    words.extend(limit.charge_always.then(|| "charge: always".to_owned()));
    words.extend(limit.ttl_us.map(|ttl_us| format!("ttl: {}", duration::print(ttl_us))));
    if let Some(Calendar { zone, .. }) = &limit.calendar {
        words.push(format!("time_zone: {}", text(dice, zone)));
    }
    if !limit.replaces.is_empty() {
        let names = limit.replaces.iter().map(|name| format!("{{ name: {} }}", text(dice, name)));
        words.push(format!("replaces: [{}]", names.collect::<Vec<_>>().join(", ")));
    }
    words.extend(limit.enforce.map(|percent| format!("enforce: {percent}%")));
    words.extend(limit.disabled.then(|| "disabled: true".to_owned()));
    words.extend(limit.lease_id.as_ref().map(|key| format!("lease_id: {}", text(dice, key))));
    words.extend(limit.reservation_id.as_ref().map(|key| format!("reservation_id: {}", text(dice, key))));
    in_braces(&words)
}

/// What a tier changes, in braces.
fn patch_words(dice: &mut Dice, patch: &Patch, changed: Option<&RuleLimit>) -> String {
    let mut words = Vec::new();
    words.extend(patch.unlimited.then(|| "unlimited: true".to_owned()));
    if let Some(changed) = changed {
        match (patch.amount, patch.window_us) {
            (None, None) => {}
            (_, Some(_)) => words.extend(how_much(dice, changed)),
            (Some(_), None) if changed.algorithm == Some(Algorithm::Concurrency) => {
                words.extend(how_much(dice, changed))
            }
            (Some(amount), None) if dice.roll(2) == 0 => words.push(format!("requests_per_unit: {amount}")),
            (Some(_), None) => words.extend(how_much(dice, changed)),
        }
    }
    words.extend(patch.algorithm.map(|algorithm| format!("algorithm: {}", algorithm.name())));
    words.extend(patch.enforce.map(|percent| format!("enforce: {percent}%")));
    in_braces(&words)
}

/// Amount and window, in one word or two.
fn how_much(dice: &mut Dice, limit: &RuleLimit) -> Vec<String> {
    let amount = limit.amount;
    if limit.algorithm == Some(Algorithm::Concurrency) {
        return vec![format!("limit: {amount}")];
    }
    let of_calendar = limit.calendar.as_ref().map(|calendar| format!("{:?}", calendar.unit).to_lowercase());
    let named = UNITS.iter().find(|(_, us)| *us == limit.window_us).map(|(name, _)| (*name).to_owned());
    let unit = of_calendar.clone().or(named);
    match (unit, dice.roll(4)) {
        (Some(unit), 0) => vec![format!("requests_per_unit: {amount}"), format!("unit: {unit}")],
        (Some(unit), 1) => {
            vec![format!("unit: {}", unit.to_uppercase()), format!("requests_per_unit: {amount}")]
        }
        (Some(unit), 2) => vec![format!("limit: {amount}/{unit}")],
        (Some(unit), _) if of_calendar.is_some() => vec![format!("limit: \"{amount}/{unit}\"")],
        _ => vec![format!("limit: {amount}/{}", duration::print(limit.window_us))],
    }
}

fn exempt_line(dice: &mut Dice, exempt: &Exempt) -> String {
    let mut list = |name: &str, texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|one| text(dice, one)).collect();
        format!("{name}: [{}]", texts.join(", "))
    };
    let mut words = Vec::new();
    if !exempt.callers.is_empty() {
        words.push(list("callers", &exempt.callers));
    }
    if !exempt.networks.is_empty() {
        words.push(list("cidrs", &exempt.networks));
    }
    format!("exempt: {}", in_braces(&words))
}

fn in_braces(words: &[String]) -> String {
    if words.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", words.join(", ")) }
}

/// A line for a flag that is set; also, now and then, for one that is not.
fn flag(dice: &mut Dice, name: &str, set: bool) -> Option<String> {
    (set || dice.once_in(8)).then(|| format!("{name}: {set}"))
}

/// A text so that YAML takes it for one, with the same characters.
fn text(dice: &mut Dice, text: &str) -> String {
    let is_word = text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
        && text.starts_with(|one: char| one.is_ascii_alphabetic())
        && !NOT_TEXT.contains(&text.to_lowercase().as_str());
    let is_printed = !text.chars().any(char::is_control);
    match dice.roll(3) {
        0 | 1 if is_word => text.to_owned(),
        2 if is_printed => format!("'{}'", text.replace('\'', "''")),
        _ => {
            let escaped: String = text.chars().map(escaped).collect();
            format!("\"{escaped}\"")
        }
    }
}

fn escaped(one: char) -> String {
    match one {
        '"' | '\\' => format!("\\{one}"),
        _ if one.is_control() => format!("\\x{:02x}", u32::from(one)),
        _ => one.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_written_as_a_person_would() {
        let hundred = RuleLimit::new(100, 60_000_000);
        let mut tree = RuleTree::new("api_platform");
        let mut top = Node::new("api_key", None);
        let patch = Patch { amount: Some(1_000), ..Patch::default() };
        top.limits.push(hundred);
        top.tiers.push(("pro".to_owned(), Tier::Patch(patch)));
        let mut below = Node::new("endpoint", Some("POST \"/\\a\0*"));
        below.limits.push(RuleLimit { name: Some("n".to_owned()), ..RuleLimit::new(5, 900_000_000) });
        top.descriptors.push(below);
        tree.descriptors.push(top);
        let expected = r#"domain: api_platform
descriptors:
  - key: api_key
    rate_limit: { requests_per_unit: 100, unit: minute }
    tiers:
      pro: { requests_per_unit: 1000 }
    descriptors:
      - key: endpoint
        value: "POST \"/\\a\x00*"
        rate_limit: { limit: 5/15m, name: "n" }
"#;
        assert_eq!(tree.to_yaml(), expected);
    }
}
