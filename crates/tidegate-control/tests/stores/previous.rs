//! Row 34: during an upgrade, programs of the version before work on the new schema. A migration only adds; what nobody needs any more is
//! taken away by the one after.
//!
//! `previous/v<n>.sql` is what a program of schema version n says to its database. Whoever adds a migration adds the file of the version
//! before it, and never changes one that is there.

use tidegate_control::{Error, Quota, SCHEMA_VERSION};

use crate::support::{Bed, alice, both, quota};

/// The statements of each version, the first is 1.
const SAID: &[&str] = &[
    include_str!("previous/v1.sql"),
    include_str!("previous/v2.sql"),
    include_str!("previous/v3.sql"),
    include_str!("previous/v4.sql"),
];

/// What this program says, to see that the last file says the same.
const OURS: &[&str] = &[
    include_str!("../../src/store/shared/change.rs"),
    include_str!("../../src/store/shared/quotas.rs"),
    include_str!("../../src/store/shared/rules.rs"),
    include_str!("../../src/store/shared/states.rs"),
    include_str!("../../src/store/shared/tiers.rs"),
    include_str!("../../src/store/shared/tokens.rs"),
    include_str!("../../src/store/shared/usage.rs"),
];

fn statements(said: &str) -> impl Iterator<Item = String> {
    let without_comments = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
        lines.join(" ")
    };
    said.split("\n\n").map(without_comments).filter(|text| !text.trim().is_empty())
}

/// In the words of the database.
fn spoken(bed: &Bed, statement: &str) -> String {
    let time = bed.dialect("1767323045000000", "TIMESTAMPTZ '2026-01-02 03:04:05Z'");
    let bytes = bed.dialect("zeroblob(32)", "decode(repeat('ab', 32), 'hex')");
    statement.replace("@time", time).replace("@bytes", bytes)
}

#[test]
fn what_the_versions_before_say_is_understood_after_all_migrations() {
    let missing =
        format!("add previous/v{}.sql: what the version before your migration says", SCHEMA_VERSION - 1);
    assert!(SAID.len() + 1 >= SCHEMA_VERSION as usize, "{missing}");
    both(async |bed| {
        for (before, said) in SAID.iter().enumerate() {
            let bed = bed.another().await;
            let store = bed.open().await;
            for statement in statements(said) {
                let done = bed.raw(&spoken(&bed, &statement)).await;
                done.unwrap_or_else(|error| panic!("version {}: {error}: {statement}", before + 1));
            }
            // And what they wrote is read here.
            let old = store.quota("old").await.unwrap().value;
            assert_eq!((old.tier.as_deref(), old.user_id.as_deref()), (Some("pro"), Some("ursula")));
            assert_eq!(old.overrides.len(), 1);
            assert_eq!(store.rule("rule").await.unwrap().document, "domain: api");
            assert!(store.token_by_prefix("abcdef01").await.unwrap().unwrap().revoked_at.is_some());
            assert_eq!(store.changes_since(0, 10).await.unwrap().changes.len(), 1);
            assert!(store.tier("gold").await.is_ok());
            store.put_quota(&alice(), quota("old", "free", vec![]), Some(1)).await.unwrap();
            bed.check_integrity().await;
        }
    });
}

#[test]
fn one_schema_newer_is_written_to_and_two_are_not() {
    both(async |bed| {
        let running = bed.open().await;
        let put = async |version: u32| {
            bed.raw(&format!("UPDATE control_head SET schema_version = {version}")).await.unwrap();
            let opened = bed.open().await;
            let mut told = Vec::new();
            for (at, store) in [&running, &opened].into_iter().enumerate() {
                let key = format!("key-{version}-{at}");
                told.push(store.put_quota(&alice(), Quota::of(key), None).await.map(drop));
            }
            told
        };
        assert_eq!(put(SCHEMA_VERSION + 1).await, [Ok(()), Ok(())], "an upgrade is on its way");
        let too_new = || Err(Error::TooNew { version: SCHEMA_VERSION + 2 });
        assert_eq!(put(SCHEMA_VERSION + 2).await, [too_new(), too_new()]);
    });
}

/// The file of this version says what this program writes; else it would be worth nothing to the next.
#[test]
fn the_newest_file_names_every_column_that_is_written() {
    let Some(said) = SAID.get(SCHEMA_VERSION as usize - 1) else { return };
    let said: Vec<String> = statements(said).map(|one| squeezed(&one)).collect();
    let mut found = 0;
    for source in OURS {
        // Texts in the sources go on behind a backslash.
        let source = squeezed(&source.replace("\\\n", " ").replace('"', " "));
        for insert in source.split("INSERT INTO ").skip(1) {
            let Some(head) = insert.split_once(')').map(|(head, _)| format!("INSERT INTO {head})")) else {
                continue;
            };
            found += 1;
            assert!(
                said.iter().any(|one| one.starts_with(&head)),
                "previous/v{SCHEMA_VERSION}.sql has no `{head}`"
            );
        }
    }
    assert!(found >= 9, "only {found} were found");
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")")
}
