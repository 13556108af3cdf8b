//! Quotas, tiers, rules, tokens, usage.

use std::time::Duration;

use tidegate_clock::{Clock, ManualClock};
use tidegate_control::{
    ControlStore, Error, NewToken, Outcome, Override, Quota, QuotaFilter, RuleState, Scope, SnapshotPage,
    Spending, State, Tier, Unit, Usage,
};

use crate::support::{alice, both, limit, quota};

#[test]
fn a_key_is_read_as_it_was_written() {
    both(async |bed| {
        let hand = ManualClock::at(1_700_000_000_123_456);
        let store = ControlStore::open(&bed.options().clock(Clock::from(&hand))).await.unwrap();
        let timed = Override {
            requests_per_unit: u32::MAX,
            unit: Unit::Year,
            effective_at: Some(1),
            expires_at: Some(253_402_300_799_999_999),
            ..limit("endpoint:POST /api/v1/orders|método:grün", 0)
        };
        let told = Quota {
            domain: Some("shop".into()),
            client_id: Some("client 1".into()),
            user_id: Some("üser".into()),
            whitelisted: true,
            ..quota("key 'one'; --", "pro", vec![timed.clone(), limit("default", 0)])
        };
        let written = store.put_quota(&alice(), told.clone(), Some(0)).await.unwrap();
        assert_eq!((written.outcome, written.now.version), (Outcome::Created, 1));
        let read = store.quota(&told.api_key).await.unwrap();
        assert_eq!(read, written.now);
        assert_eq!((read.created_at, read.updated_at), (1_700_000_000_123_456, 1_700_000_000_123_456));
        assert_eq!(read.value.overrides, [limit("default", 0), timed]);
        assert_eq!(Quota { overrides: told.overrides.clone(), ..read.value }, told);

        // The seeds' table, as somebody else would read it.
        let kept = bed.texts("SELECT descriptor || ' ' || requests_per_unit || ' ' || unit || ' ' || tier FROM quota_overrides ORDER BY 1");
        assert_eq!(
            kept.await,
            ["default 0 minute pro", "endpoint:POST /api/v1/orders|método:grün 4294967295 year pro"]
        );

        // A key with a tier alone.
        store.put_quota(&alice(), quota("bare", "any-tier", vec![]), None).await.unwrap();
        assert_eq!(store.quota("bare").await.unwrap().value, quota("bare", "any-tier", vec![]));
        assert_eq!(store.quota("nobody").await, Err(Error::NotFound { what: "quota" }));
    });
}

#[test]
fn a_put_that_changes_nothing_writes_nothing() {
    both(async |bed| {
        let store = bed.open().await;
        let told = quota("key", "pro", vec![limit("b:1", 5), limit("a:1", 6)]);
        let first = store.put_quota(&alice(), told.clone(), None).await.unwrap();
        let again = store.put_quota(&alice(), told.clone(), Some(1)).await.unwrap();
        assert_eq!((again.outcome, again.now), (Outcome::Unchanged, first.now));
        let tier = Tier { name: "pro".into(), overrides: vec![limit("default", 1000)] };
        let rule = r#"{"limit": "5/1m"}"#.to_string();
        let state = RuleState { rule: "r".into(), state: State::Shadow, expires_at: Some(7) };
        for outcome in [Outcome::Created, Outcome::Unchanged] {
            assert_eq!(store.put_tier(&alice(), tier.clone(), None).await.unwrap().outcome, outcome);
            assert_eq!(store.put_rule(&alice(), "r", rule.clone(), None).await.unwrap().outcome, outcome);
            assert_eq!(store.put_rule_state(&alice(), state.clone(), None).await.unwrap().outcome, outcome);
        }
        assert_eq!(store.revision().await, Ok(4));
        assert_eq!(bed.texts("SELECT 'row' FROM audit").await.len(), 4);
    });
}

#[test]
fn what_is_left_out_is_taken_away_and_what_stays_keeps_its_identity() {
    both(async |bed| {
        let store = bed.open().await;
        let told = quota("key", "pro", vec![limit("a:1", 1), limit("b:1", 2), limit("c:1", 3)]);
        store.put_quota(&alice(), told, None).await.unwrap();
        let identity = bed.dialect(
            "SELECT id FROM quota_overrides WHERE descriptor = 'b:1'",
            "SELECT id::text FROM quota_overrides WHERE descriptor = 'b:1'",
        );
        let id = bed.texts(identity).await;
        assert_eq!(id[0].len(), 36, "{id:?}");
        let told = quota("key", "free", vec![limit("b:1", 2), limit("c:1", 4)]);
        let written = store.put_quota(&alice(), told.clone(), Some(1)).await.unwrap();
        assert_eq!((written.outcome, written.now.version), (Outcome::Updated, 2));
        assert_eq!(store.quota("key").await.unwrap().value, told);
        assert_eq!(bed.texts(identity).await, id);
        assert_eq!(bed.texts("SELECT tier FROM quota_overrides").await, ["free", "free"]);
        assert_eq!(store.delete_quota(&alice(), "key", Some(2)).await, Ok(3));
        assert_eq!(bed.texts("SELECT descriptor FROM quota_overrides").await, Vec::<String>::new());
        assert_eq!(store.delete_quota(&alice(), "key", None).await, Err(Error::NotFound { what: "quota" }));
    });
}

/// Row 35.
#[test]
fn of_two_who_edit_the_same_one_is_told_of_the_other() {
    both(async |bed| {
        let (here, there) = (bed.open().await, bed.open().await);
        let id = "rule";
        let document = |limit: &str| format!(r#"{{"limit": "{limit}"}}"#);
        here.put_rule(&alice(), id, document("1/1s"), Some(0)).await.unwrap();
        let bob = tidegate_control::Who::new("bob", "10.0.0.2");
        let (alice, doc) = (alice(), document("2/1s"));
        let (one, other) = tokio::join!(
            here.put_rule(&alice, id, doc, Some(1)),
            there.put_rule(&bob, id, document("3/1s"), Some(1)),
        );
        let (winner, loser) = if one.is_ok() { (one, other) } else { (other, one) };
        assert_eq!(winner.unwrap().now.version, 2);
        assert_eq!(loser.unwrap_err(), Error::Conflict { current: 2 });
        let refused = here.put_quota(&alice, Quota::of("key"), Some(5)).await;
        assert_eq!(refused.unwrap_err(), Error::Conflict { current: 0 });
        here.put_quota(&alice, Quota::of("key"), Some(0)).await.unwrap();
        let refused = here.put_quota(&alice, quota("key", "pro", vec![]), Some(0)).await;
        assert_eq!(refused.unwrap_err(), Error::Conflict { current: 3 });
        let refused = there.delete_quota(&alice, "key", Some(2)).await;
        assert_eq!(refused.unwrap_err(), Error::Conflict { current: 3 });
        assert_eq!(here.revision().await, Ok(3), "what is refused leaves nothing");
    });
}

#[test]
fn many_are_written_in_one_transaction_or_not_at_all() {
    both(async |bed| {
        let store = bed.open().await;
        let record = |number: usize| {
            let overrides = (0..number % 5).map(|n| limit(&format!("endpoint:{n}"), number as u32)).collect();
            quota(
                &format!("key-{number:04}"),
                if number.is_multiple_of(2) { "pro" } else { "free" },
                overrides,
            )
        };
        let puts: Vec<_> = (0..1000).map(|number| (record(number), None)).collect();
        let written = store.put_quotas(&alice(), puts.clone()).await.unwrap();
        assert_eq!(written.len(), 1000);
        assert_eq!(store.revision().await, Ok(1000));
        assert_eq!(store.quota("key-0999").await.unwrap().value, record(999));
        // Again, with one that is different.
        let mut again = puts.clone();
        again[500].0.tier = Some("enterprise".into());
        let written = store.put_quotas(&alice(), again).await.unwrap();
        assert_eq!(written.iter().filter(|one| one.outcome == Outcome::Unchanged).count(), 999);
        assert_eq!(store.revision().await, Ok(1001));
        // One conflict is one for all.
        let mut wrong: Vec<_> = (0..10).map(|number| (Quota::of(format!("key-{number:04}")), None)).collect();
        wrong[9].1 = Some(77);
        assert_eq!(store.put_quotas(&alice(), wrong).await, Err(Error::Conflict { current: 10 }));
        assert_eq!(store.revision().await, Ok(1001));
        assert_eq!(store.quota("key-0000").await.unwrap().value, record(0));
        let twice = vec![(Quota::of("a"), None), (Quota::of("a"), None)];
        assert!(matches!(store.put_quotas(&alice(), twice).await, Err(Error::Invalid { .. })));
        let many = (0..1001).map(|number| (record(number), None)).collect();
        assert!(matches!(store.put_quotas(&alice(), many).await, Err(Error::Invalid { .. })));
    });
}

#[test]
fn keys_are_listed_page_by_page_in_the_order_of_their_bytes() {
    both(async |bed| {
        let store = bed.open().await;
        let names = ["Zoe", "a", "a_b", "ab", "b", "b-1", "b-2", "bee", "~", "Ä"];
        for name in names.iter().rev() {
            let tier = if name.starts_with('b') { "pro" } else { "free" };
            store
                .put_quota(&alice(), quota(name, tier, vec![limit("x:1", 1), limit("y:1", 2)]), None)
                .await
                .unwrap();
        }
        let list = async |filter: &QuotaFilter, limit: usize| {
            let (mut all, mut after) = (Vec::new(), None::<String>);
            loop {
                let page = store.quotas(filter, after.as_deref(), limit).await.unwrap();
                assert!(
                    page.items.len() <= limit && page.items.iter().all(|key| key.value.overrides.len() == 2)
                );
                all.extend(page.items.into_iter().map(|key| key.value.api_key));
                match page.next {
                    Some(next) => after = Some(next),
                    None => return all,
                }
            }
        };
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        for limit in [1, 3, 10, 1000] {
            assert_eq!(list(&QuotaFilter::default(), limit).await, sorted);
        }
        let of_tier = QuotaFilter { tier: Some("pro".into()), ..QuotaFilter::default() };
        assert_eq!(list(&of_tier, 2).await, ["b", "b-1", "b-2", "bee"]);
        let beginning = |prefix: &str| QuotaFilter { prefix: Some(prefix.into()), ..QuotaFilter::default() };
        assert_eq!(list(&beginning("b-"), 1).await, ["b-1", "b-2"]);
        assert_eq!(list(&beginning("a_"), 9).await, ["a_b"]);
        assert_eq!(list(&beginning("%"), 9).await, Vec::<String>::new());
        let both =
            QuotaFilter { tier: Some("free".into()), prefix: Some("a".into()), ..QuotaFilter::default() };
        assert_eq!(list(&both, 9).await, ["a", "a_b", "ab"]);
        let found = store.quotas_of(&["b", "nobody", "a"]).await.unwrap();
        assert_eq!(found.iter().map(|key| key.value.api_key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    });
}

#[test]
fn keys_are_searched_by_who_is_behind_them_and_by_when_exceptions_end() {
    both(async |bed| {
        let store = bed.open().await;
        let ends = |descriptor: &str, at: Option<i64>| Override { expires_at: at, ..limit(descriptor, 1) };
        let put = async |key: &str, user: &str, client: Option<&str>, overrides: Vec<Override>| {
            let user_id = Some(user.to_owned()).filter(|user| !user.is_empty());
            let quota =
                Quota { user_id, client_id: client.map(str::to_owned), ..quota(key, "pro", overrides) };
            store.put_quota(&alice(), quota, None).await.unwrap();
        };
        put("a", "ursula", None, vec![ends("x:1", Some(10)), ends("y:1", Some(40))]).await;
        put("b", "ursula", Some("acme"), vec![ends("x:1", None)]).await;
        put("c", "", Some("acme"), vec![ends("x:1", Some(20)), ends("y:1", None)]).await;
        put("d", "Ursula", None, vec![]).await;
        put("e", "ursula", None, vec![ends("x:1", Some(30)), ends("y:1", Some(30))]).await;
        let text = |said: &str| Some(said.to_owned());
        let none = QuotaFilter::default;
        let cases: [(QuotaFilter, &[&str]); 10] = [
            (QuotaFilter { user_id: text("ursula"), ..none() }, &["a", "b", "e"]),
            (QuotaFilter { user_id: text("urs"), ..none() }, &[]),
            (QuotaFilter { client_id: text("acme"), ..none() }, &["b", "c"]),
            (QuotaFilter { client_id: text("acme"), user_id: text("ursula"), ..none() }, &["b"]),
            (QuotaFilter { expires_before: Some(30), ..none() }, &["a", "c"]),
            (QuotaFilter { expires_before: Some(31), ..none() }, &["a", "c", "e"]),
            (QuotaFilter { expires_before: Some(10), ..none() }, &[]),
            (QuotaFilter { expires_after: Some(30), ..none() }, &["a", "e"]),
            // One override, and not two.
            (QuotaFilter { expires_after: Some(11), expires_before: Some(40), ..none() }, &["c", "e"]),
            (QuotaFilter { expires_before: Some(40), user_id: text("ursula"), ..none() }, &["a", "e"]),
        ];
        for (filter, expected) in cases {
            for limit in [1, 100] {
                let (mut found, mut after) = (Vec::new(), None::<String>);
                loop {
                    let page = store.quotas(&filter, after.as_deref(), limit).await.unwrap();
                    found.extend(page.items);
                    match page.next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                let keys: Vec<&str> = found.iter().map(|key| key.value.api_key.as_str()).collect();
                assert_eq!(keys, expected, "{filter:?}");
                // Whole, whatever they were found by.
                let whole = store.quotas_of(&keys).await.unwrap();
                assert_eq!(found, whole, "{filter:?}");
            }
        }
        // By their indexes, of which SQLite says whether they serve: of a million keys nobody looks at each.
        for (table, index, what) in [
            ("quota_keys", "quota_keys_user", "api_key > '' AND user_id = 'ursula'"),
            ("quota_keys", "quota_keys_client", "api_key > '' AND client_id = 'acme'"),
            ("quota_overrides", "quota_overrides_end", "expires_at IS NOT NULL AND expires_at < 25"),
        ] {
            let sqlite = format!("SELECT api_key FROM {table} INDEXED BY {index} WHERE {what}");
            let postgres = format!("SELECT indexname::text FROM pg_indexes WHERE indexname = '{index}'");
            assert!(!bed.texts(bed.dialect(&sqlite, &postgres)).await.is_empty(), "{index}");
        }
    });
}

#[test]
fn a_rule_remembers_what_it_was_and_becomes_it_again() {
    both(async |bed| {
        let store = bed.open().await;
        let document = |number: u32| format!(r#"{{"limit": "{number}/1s"}}"#);
        for number in 1..=3 {
            let written = store.put_rule(&alice(), "r:1", document(number), None).await.unwrap();
            assert_eq!(written.now.version, u64::from(number));
        }
        let back = store.roll_back_rule(&alice(), "r:1", 1, Some(3)).await.unwrap();
        assert_eq!((back.now.version, back.now.document), (4, document(1)));
        assert_eq!(store.delete_rule(&alice(), "r:1", Some(4)).await, Ok(5));
        assert_eq!(store.rule("r:1").await, Err(Error::NotFound { what: "rule" }));
        let history = store.rule_history("r:1", None, 3).await.unwrap();
        let kept: Vec<_> = history.items.iter().map(|one| (one.version, one.document.clone())).collect();
        assert_eq!(kept, [(5, None), (4, Some(document(1))), (3, Some(document(3)))]);
        let before = history.next.and_then(|next| next.parse().ok());
        let history = store.rule_history("r:1", before, 3).await.unwrap();
        assert_eq!(history.items.iter().map(|one| one.version).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(history.next, None);
        assert_eq!(store.rule_version("r:1", 2).await.unwrap().document, Some(document(2)));
        assert_eq!(store.rule_version("r:1", 2).await.unwrap().actor, "alice");
        // What was deleted comes back by the same call, and versions go on.
        let back = store.roll_back_rule(&alice(), "r:1", 2, Some(0)).await.unwrap();
        assert_eq!((back.now.version, back.outcome), (6, Outcome::Created));
        let missing = store.roll_back_rule(&alice(), "r:1", 9, None).await;
        assert_eq!(missing.unwrap_err(), Error::NotFound { what: "version of this rule" });
        assert!(matches!(store.roll_back_rule(&alice(), "r:1", 5, None).await, Err(Error::Invalid { .. })));
        assert!(matches!(
            store.put_rule(&alice(), "a b", document(1), None).await,
            Err(Error::Invalid { .. })
        ));
        assert!(matches!(store.put_rule(&alice(), "r", "{".into(), None).await, Err(Error::Invalid { .. })));
        let listed = store.rules(None, 10).await.unwrap();
        assert_eq!(listed.items, [store.rule("r:1").await.unwrap()]);
    });
}

#[test]
fn a_kill_switch_acts_on_rules_with_names_as_long_as_they_get() {
    both(async |bed| {
        let store = bed.open().await;
        // Not to be pressed into an index.
        let mut number = 1_u64;
        let noise = (0..4096).map(|_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (number >> 58) as u8)
        });
        let rule: String = noise.collect();
        let state = |state| RuleState { rule: rule.clone(), state, expires_at: None };
        let share = State::EnforceShare { basis_points: 1234 };
        store.put_rule_state(&alice(), state(share), Some(0)).await.unwrap();
        assert_eq!(store.rule_state(&rule).await.unwrap().value.state, share);
        store.put_rule_state(&alice(), state(State::Disabled), Some(1)).await.unwrap();
        assert_eq!(store.rule_states(None, 10).await.unwrap().items[0].value, state(State::Disabled));
        assert_eq!(store.delete_rule_state(&alice(), &rule, Some(2)).await, Ok(3));
        assert_eq!(store.rule_state(&rule).await, Err(Error::NotFound { what: "rule state" }));
        let odd = RuleState { rule: "a\0b".into(), state: State::Shadow, expires_at: None };
        assert!(matches!(store.put_rule_state(&alice(), odd, None).await, Err(Error::Invalid { .. })));
    });
}

#[test]
fn tokens_are_found_by_their_prefix_until_they_are_revoked() {
    both(async |bed| {
        let (here, there) = (bed.open().await, bed.open().await);
        let (one, other) = tokio::join!(here.token_key(), there.token_key());
        assert_eq!(one, other, "the key is made once");
        assert_eq!(here.token_key().await, one);
        assert_eq!(here.revision().await, Ok(0), "and it is no change");
        let new = NewToken {
            prefix: "abcd1234".into(),
            hash: [7; 32],
            scope: Scope::Write,
            tenant: Some("shop".into()),
            name: "ci".into(),
            expires_at: Some(99),
        };
        let token = here.create_token(&alice(), new.clone()).await.unwrap();
        assert_eq!(there.token_by_prefix("abcd1234").await, Ok(Some(token.clone())));
        assert_eq!((token.hash, token.scope, token.created_by.as_str()), ([7; 32], Scope::Write, "alice"));
        assert!(
            matches!(here.create_token(&alice(), new).await, Err(Error::Invalid { .. })),
            "a prefix is one token's"
        );
        assert_eq!(here.token_by_prefix("abcd1235").await, Ok(None));
        let revoked = there.revoke_token(&alice(), &token.id).await.unwrap();
        assert!(revoked.revoked_at.is_some());
        assert_eq!(here.revoke_token(&alice(), &token.id).await, Ok(revoked.clone()));
        assert_eq!(here.tokens(None, 10).await.unwrap().items, [revoked]);
        assert_eq!(here.revision().await, Ok(2));
        let told = bed.texts("SELECT coalesce(before, '') || after FROM audit ORDER BY seq").await;
        assert!(told.iter().all(|told| told.contains("abcd1234") && !told.contains("hash")), "{told:?}");
    });
}

/// So much was used of a period, and so much given back before that, at this time.
fn spending(key: u128, period_start: i64, used: i64, given_back: i64, at: i64) -> Spending {
    Spending { usage: Usage { key, period_start, used }, given_back, at }
}

#[test]
fn what_calendars_used_is_noted_whatever_order_it_is_told_in() {
    both(async |bed| {
        let store = bed.open().await;
        let used = |key, period_start, used| Usage { key, period_start, used };
        let told = |key, period, used| spending(key, period, used, 0, 100);
        let big = u128::MAX;
        // Of several notes of one moment the largest counts, wherever it stands.
        let notes = [told(1, 10, 5), told(big, 10, 7), told(1, 10, 6), told(1, 20, 1), told(big, 10, 3)];
        store.flush_usage(&notes).await.unwrap();
        store.flush_usage(&[told(1, 10, 4), told(1, 20, 2)]).await.unwrap();
        assert_eq!(store.usage_of(&[1]).await.unwrap(), [told(1, 10, 6), told(1, 20, 2)]);
        let first = store.usage_all(None, 2).await.unwrap();
        assert_eq!(first, [used(1, 10, 6), used(1, 20, 2)]);
        assert_eq!(store.usage_all(Some((1, 20)), 2).await.unwrap(), [used(big, 10, 7)]);
        let rest = store.usage_all(Some((1, 10)), 2).await.unwrap();
        assert_eq!(rest, [used(1, 20, 2), used(big, 10, 7)], "a page may end between two periods of a key");
        assert_eq!(store.forget_usage_before(20).await, Ok(2));
        assert_eq!(store.usage_all(None, 9).await.unwrap(), [used(1, 20, 2)]);
        assert_eq!(store.revision().await, Ok(0), "it is no change of the control plane");
        // Two nodes that tell of the same keys in different orders.
        let other = bed.open().await;
        let mut keys: Vec<Spending> = (0..2500).map(|key| told(key, 30, 1)).collect();
        let forward = keys.clone();
        keys.reverse();
        let (one, two) = tokio::join!(store.flush_usage(&forward), other.flush_usage(&keys));
        assert_eq!((one, two), (Ok(()), Ok(())));
    });
}

#[test]
fn what_was_given_back_counts_and_what_a_counter_lost_does_not() {
    both(async |bed| {
        let store = bed.open().await;
        let noted = async || store.usage_of(&[1]).await.unwrap()[0].usage.used;
        store.flush_usage(&[spending(1, 10, 100, 0, 1)]).await.unwrap();
        store.flush_usage(&[spending(1, 10, 40, 60, 2)]).await.unwrap();
        assert_eq!(noted().await, 40, "given back");
        store.flush_usage(&[spending(1, 10, 40, 60, 2)]).await.unwrap();
        assert_eq!(noted().await, 40, "told twice");
        store.flush_usage(&[spending(1, 10, 3, 5, 3)]).await.unwrap();
        assert_eq!(noted().await, 40, "a counter that was lost, and five of what came since given back");
        // One node saw a charge, and another, later, what was given back of it: told at once or one by one.
        store
            .flush_usage(&[spending(1, 10, 90, 0, 200_000), spending(1, 10, 41, 50, 300_000)])
            .await
            .unwrap();
        assert_eq!(noted().await, 41);
    });
}

#[test]
fn a_reset_of_a_calendar_forgets_what_was_seen_before_it() {
    both(async |bed| {
        let store = bed.open().await;
        let noted = async |key| store.usage_of(&[key]).await.unwrap()[0].usage.used;
        store.flush_usage(&[spending(1, 10, 100, 0, 1), spending(2, 10, 8, 0, 1)]).await.unwrap();
        store.reset_usage(&[(1, 10), (3, 10)], 1_000).await.unwrap();
        assert_eq!((noted(1).await, noted(2).await, noted(3).await), (0, 8, 0));
        let late = [spending(1, 10, 101, 0, 999), spending(3, 10, 5, 0, 999)];
        store.flush_usage(&late).await.unwrap();
        assert_eq!((noted(1).await, noted(3).await), (0, 0), "seen before, told after");
        store.flush_usage(&[spending(1, 10, 1, 0, 1_000), spending(3, 10, 2, 0, 1_001)]).await.unwrap();
        assert_eq!((noted(1).await, noted(3).await), (1, 2));
    });
}

#[test]
fn a_snapshot_is_of_one_revision_whatever_is_changed_meanwhile() {
    both(async |bed| {
        let store = bed.open().await;
        let keys: Vec<_> =
            (0..1000).map(|n| (quota(&format!("k{n:04}"), "pro", vec![limit("a:1", n)]), None)).collect();
        store.put_quotas(&alice(), keys).await.unwrap();
        let more: Vec<_> = (1000..1500).map(|n| (quota(&format!("k{n:04}"), "pro", vec![]), None)).collect();
        store.put_quotas(&alice(), more).await.unwrap();
        store
            .put_tier(&alice(), Tier { name: "pro".into(), overrides: vec![limit("default", 9)] }, None)
            .await
            .unwrap();
        store.put_rule(&alice(), "r", "{}".into(), None).await.unwrap();
        let state = RuleState { rule: "r".into(), state: State::Shadow, expires_at: None };
        store.put_rule_state(&alice(), state, None).await.unwrap();
        let mut snapshot = store.snapshot().await.unwrap();
        assert_eq!(snapshot.revision(), 1503);
        store.delete_quota(&alice(), "k1499", None).await.unwrap();
        store.put_quota(&alice(), quota("k0000", "free", vec![]), None).await.unwrap();
        store.delete_tier(&alice(), "pro", None).await.unwrap();
        let (mut counts, mut quotas) = ([0; 3], Vec::new());
        while let Some(page) = snapshot.next().await.unwrap() {
            match page {
                SnapshotPage::Tiers(tiers) => counts[0] += tiers.len(),
                SnapshotPage::Rules(rules) => counts[1] += rules.len(),
                SnapshotPage::RuleStates(states) => counts[2] += states.len(),
                SnapshotPage::Quotas(page) => quotas.extend(page),
            }
        }
        assert_eq!((counts, quotas.len()), ([1, 1, 1], 1500));
        assert!(quotas.iter().all(|key| key.version <= 1500 && key.value.tier.as_deref() == Some("pro")));
        assert_eq!(quotas.iter().filter(|key| key.value.overrides.len() == 1).count(), 1000);
        // Those that are left off give their connections back.
        for _ in 0..20 {
            let mut dropped = store.snapshot().await.unwrap();
            dropped.next().await.unwrap();
        }
        assert_eq!(store.snapshot().await.unwrap().revision(), 1506);
    });
}

#[test]
fn a_store_of_a_newer_tidegate_is_read_and_not_written() {
    both(async |bed| {
        let store = bed.open().await;
        store.put_quota(&alice(), Quota::of("key"), None).await.unwrap();
        bed.raw("UPDATE control_head SET schema_version = 77").await.unwrap();
        // One that runs already, and one that is opened now.
        for store in [store, bed.open().await] {
            let refused = store.put_quota(&alice(), quota("key", "pro", vec![]), None).await.unwrap_err();
            assert_eq!(refused, Error::TooNew { version: 77 });
            assert!(refused.to_string().contains("upgrade"), "{refused}");
            let used = [spending(1, 1, 1, 0, 1)];
            assert_eq!(store.flush_usage(&used).await, Err(Error::TooNew { version: 77 }));
            assert_eq!(store.schema_version().await, Ok(77));
            assert_eq!(store.quota("key").await.unwrap().value, Quota::of("key"));
            assert_eq!(store.snapshot().await.unwrap().revision(), 1);
        }
    });
}

#[test]
fn a_store_that_cannot_be_reached_says_so_in_time() {
    both(async |bed| {
        let nowhere = if bed.server().is_some() {
            tidegate_control::Options::postgres("postgres://tidegate@127.0.0.1:1/nothing")
        } else {
            std::fs::write(bed.place(), "this is no database".repeat(100)).unwrap();
            bed.options()
        };
        let opened = ControlStore::open(&nowhere.deadline(Duration::from_millis(500))).await;
        assert!(matches!(opened, Err(Error::Unavailable { .. })));
    });
}
