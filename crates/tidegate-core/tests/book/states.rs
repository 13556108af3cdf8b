//! Rules that somebody put in another state than they were written in.

use std::collections::HashMap;
use tidegate_core::{
    Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Fate, Limit, Micros, Plan, Query, Role, RuleDraft,
    RuleState, Secret, Share,
};

/// A book of three rules: as everybody writes them, in shadow, switched off.
fn book() -> Book {
    let limit = || Some(Limit::fixed_window(10, Micros::from_secs(60)).expect("a limit"));
    let rule = |key: &str, rule: RuleDraft| DescriptorDraft {
        key: key.into(),
        limits: vec![RuleDraft { name: Some("n".into()), limit: limit(), ..rule }],
        ..DescriptorDraft::default()
    };
    let descriptors = vec![
        rule("plain", RuleDraft::default()),
        rule("shadow", RuleDraft { shadow: true, ..RuleDraft::default() }),
        rule("off", RuleDraft { disabled: true, ..RuleDraft::default() }),
    ];
    let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
    Book::new([domain], Secret::new([7; 16]))
}

/// What a rule does to callers: none if it is as if it were not there.
fn roles(book: &Book, key: &str) -> Option<Vec<Role>> {
    let role = |value: &str| {
        let entries = [Entry { key, value }];
        let descriptors = [Descriptor { entries: 0..1, cost: 1, limit: None, own_cost: false }];
        let mut plan = Plan::new();
        book.plan(
            &Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None },
            &mut plan,
        );
        match plan.found()[0].fate {
            Fate::Counted(take) => Some(plan.takes()[take].role),
            fate => {
                assert_eq!(fate, Fate::Disabled);
                None
            }
        }
    };
    (0..200).map(|caller| role(&caller.to_string())).collect()
}

#[test]
fn a_state_is_in_the_place_of_what_was_written_until_it_is_taken_back() {
    let written = book();
    let all = |role: Role| Some(vec![role; 200]);
    for key in ["plain", "shadow", "off"] {
        let id: Box<str> = format!("d|{key}#n").into();
        let put = |state| written.with_states(&HashMap::from_iter([(id.clone(), state)]));
        let before = roles(&written, key);
        assert_eq!(roles(&put(RuleState::Enforce(Share::ALL)), key), all(Role::Enforce), "{key}");
        assert_eq!(roles(&put(RuleState::Shadow), key), all(Role::Shadow), "{key}");
        assert_eq!(roles(&put(RuleState::Disabled), key), None, "{key}");
        let part = roles(&put(RuleState::Enforce(Share::of_basis_points(2_500))), key).expect("counted");
        let refused = part.iter().filter(|role| **role == Role::Enforce).count();
        assert!((20..80).contains(&refused), "a quarter of the callers, not {refused} of 200");
        assert_eq!(roles(&put(RuleState::Disabled).with_states(&HashMap::new()), key), before, "{key}");
        let under = put(RuleState::Shadow).under(Secret::new([8; 16]));
        assert_eq!(roles(&under, key), all(Role::Shadow), "another secret changes no state");
        for other in ["plain", "shadow", "off"].into_iter().filter(|other| *other != key) {
            assert_eq!(roles(&put(RuleState::Disabled), other), roles(&written, other), "{key}, {other}");
        }
    }
}
