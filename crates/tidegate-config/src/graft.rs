//! Rules that were written one by one, by the control plane, grafted onto the trees of rule files: descriptors with the same key and
//! value become one, and what is said about them comes together. Two limits that cannot be told apart are refused, and nothing that a
//! file says is changed.

use tidegate_core::{DescriptorDraft, RuleDraft};

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::load::refuse_settings;
use crate::reader::Reader;
use crate::rules::DomainText;

/// Grafts what was added onto the domains that it is about; a domain that is not there yet comes to be.
pub(crate) fn graft_all(domains: &mut Vec<DomainText>, added: Vec<DomainText>, reader: &Reader) {
    for text in added {
        match domains.iter_mut().find(|domain| domain.draft.name == text.draft.name) {
            None => domains.push(text),
            Some(first) => {
                refuse_settings(first, &text, reader);
                let graft = Graft { reader, text: &text };
                graft.onto(&mut first.draft.descriptors, &text.draft.descriptors);
            }
        }
    }
}

struct Graft<'g> {
    reader: &'g Reader,
    /// What is grafted, to say where it stands.
    text: &'g DomainText,
}

impl Graft<'_> {
    fn onto(&self, siblings: &mut Vec<DescriptorDraft>, added: &[DescriptorDraft]) {
        for draft in added {
            let value = |draft: &DescriptorDraft| draft.value.clone().filter(|value| !value.is_empty());
            let is_same =
                |sibling: &&mut DescriptorDraft| sibling.key == draft.key && value(sibling) == value(draft);
            match siblings.iter_mut().find(is_same) {
                None => siblings.push(draft.clone()),
                Some(sibling) => self.join(sibling, draft),
            }
        }
    }

    fn join(&self, there: &mut DescriptorDraft, added: &DescriptorDraft) {
        let says = added.exempt.is_some() || added.share_threshold || added.value_to_metric;
        if says || (added.always && !there.always && !there.limits.is_empty()) {
            self.refuse(
                Code::DuplicateDescriptor,
                format!(
                    "the descriptor {} is there already, and says itself what holds for all its limits",
                    quoted(&added.key)
                ),
                "leave out `exempt`, `share_threshold`, `value_to_metric` and `always` here",
            );
        }
        there.always |= added.always;
        self.limits(&mut there.limits, &added.limits);
        for (tier, limits) in &added.tiers {
            match there.tiers.iter_mut().find(|(name, _)| name == tier) {
                None => there.tiers.push((tier.clone(), limits.clone())),
                Some((_, there)) => self.limits(there, limits),
            }
        }
        self.onto(&mut there.descriptors, &added.descriptors);
    }

    fn limits(&self, there: &mut Vec<RuleDraft>, added: &[RuleDraft]) {
        for rule in added {
            if let Some(same) = there.iter().find(|other| label(other) == label(rule)) {
                let place = match same.origin.line {
                    0 => same.origin.file.to_string(),
                    line => format!("{}:{line}", same.origin.file),
                };
                self.refuse(
                    Code::DuplicateRule,
                    format!("the limit {} is there already, from {place}", quoted(&label(rule))),
                    "give it another `name`, or change it where it stands",
                );
            } else {
                there.push(rule.clone());
            }
        }
    }

    fn refuse(&self, code: Code, message: String, help: &'static str) {
        self.reader.say(Diagnostic::new(code, self.text.at, message).label("added by this").help(help));
    }
}

/// What a limit is known by among those of its descriptor.
fn label(rule: &RuleDraft) -> String {
    match (&rule.name, &rule.limit) {
        (Some(name), _) => name.to_string(),
        (None, Some(limit)) => limit.label(),
        (None, None) => "unlimited".to_owned(),
    }
}
