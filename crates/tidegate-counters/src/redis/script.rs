//! The scripts. One for each set of laws that a call may need, because a script is run from its first line in every call.

use std::sync::OnceLock;

use super::encode::Laws;
use super::wires::Script;

/// What each law is defined by, in the order of their numbers; logs and places have the second in common.
const LAWS: [&str; 8] = [
    include_str!("scripts/fixed.lua"),
    include_str!("scripts/parted.lua"),
    include_str!("scripts/level.lua"),
    include_str!("scripts/cells.lua"),
    include_str!("scripts/log.lua"),
    include_str!("scripts/places.lua"),
    include_str!("scripts/spent.lua"),
    include_str!("scripts/reference.lua"),
];
const HEAD: &str = include_str!("scripts/head.lua");
const LOOP: &str = include_str!("scripts/loop.lua");
const JUDGE: &str = include_str!("scripts/judge.lua");
const LISTS: &str = include_str!("scripts/lists.lua");
const LISTS_FOR: u8 = 0b11_0000;
const TAIL: &str = include_str!("scripts/tail.lua");

/// The script that judges requests which need these laws.
pub(super) fn take(laws: Laws) -> &'static Script {
    static SCRIPTS: [OnceLock<Script>; 256] = [const { OnceLock::new() }; 256];
    SCRIPTS[usize::from(laws.0)].get_or_init(|| Script::new(text(laws.0).leak())) // At most 255 of them.
}

/// The script that reads counters.
pub(super) fn look() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| Script::new(include_str!("scripts/look.lua")))
}

/// The script that counts nodes.
pub(super) fn nodes() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| Script::new(include_str!("scripts/nodes.lua")))
}

fn text(laws: u8) -> String {
    let lists = if laws & LISTS_FOR > 0 { LISTS } else { "" };
    let needed = (0..LAWS.len()).filter(|law| laws & 1 << law > 0).map(|law| LAWS[law]);
    let needed: String = needed.map(|law| law.replace("-- @judge", JUDGE)).collect();
    [HEAD, lists, LOOP, &needed, TAIL].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What servers of other makes have too, and clusters can place.
    #[test]
    fn scripts_call_few_commands_and_name_all_their_keys() {
        let all =
            [&text(u8::MAX), include_str!("scripts/look.lua"), include_str!("scripts/nodes.lua")].concat();
        let code: String = all.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        let mut calls = 0;
        for rest in code.split("redis.").skip(1) {
            let call = rest.strip_prefix("call('").unwrap_or_else(|| panic!("more than a call: {rest}"));
            let (command, rest) = call.split_once('\'').expect("a command");
            assert!(["TIME", "GET", "MGET", "SET"].contains(&command), "{command}");
            let names = [", KEYS[", ", unpack(KEYS)", ", spread(KEYS)"];
            let is_named = names.iter().any(|names| rest.starts_with(names));
            assert!(is_named || command == "TIME" && rest.starts_with(')'), "{command}: whose key is it?");
            calls += 1;
        }
        assert!(calls >= 8, "{calls}");
        for library in ["cjson", "cmsgpack", "bit.", "os.", "server.", "loadstring"] {
            assert!(!code.contains(library), "{library}");
        }
    }
}
