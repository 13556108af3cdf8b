//! The one table of what can be wrong. `docs/diagnostics.md` is made from it.

use std::fmt;

/// Does it stop the load?
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is taken; something in it deserves a look.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// What the documentation says about a code.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The heading.
    pub title: &'static str,
    /// What it means, and why it is refused.
    pub means: &'static str,
    /// How to mend it.
    pub fix: &'static str,
    /// A file that has it.
    pub bad: &'static str,
    /// The same, mended.
    pub good: &'static str,
}

/// Declares every code once: name, stable id, severity, and its page.
macro_rules! codes {
    ($($name:ident $id:literal $severity:ident $title:literal {
        means: $means:literal, fix: $fix:literal, bad: $bad:literal, good: $good:literal $(,)?
    })*) => {
        /// A kind of trouble. Its id is stable: scripts may look for it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable id, such as `unknown-key`.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            /// Error or warning.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// What the documentation says about it.
            pub fn page(self) -> Page {
                match self {
                    $(Self::$name => Page { title: $title, means: $means, fix: $fix, bad: $bad, good: $good },)*
                }
            }
        }
    };
}

codes! {
    UnreadableFile "unreadable-file" Error "the file cannot be read" {
        means: "The file or folder does not exist, this process may not read it, or it is not a file but a pipe or a device, which might \
                never end.",
        fix: "Check the path and the permissions. In a container, check that the volume is mounted.",
        bad: "", good: "",
    }
    TooManyFiles "too-many-files" Error "more files than are looked at" {
        means: "Below the folder of rules are more files or more levels of folders than are looked at. Those beyond would silently not \
                count, so none do. A path that leads to the wrong folder looks like this.",
        fix: "Check the path, or put the rules together into fewer files.",
        bad: "", good: "",
    }
    EmptyFile "empty-file" Error "the file says nothing" {
        means: "The file is empty or holds nothing but comments. A file that was cut short while it was written looks like \
                this, so it is not taken for \"no rules\".",
        fix: "Write the file again, or remove it if nothing is meant to be in it.",
        bad: "# rules:\n#   - …\n", good: "domain: shop\ndescriptors: []\n",
    }
    NotUtf8 "not-utf8" Error "the file is not UTF-8" {
        means: "Text is read as UTF-8, with or without a byte order mark. The message names the first byte that is not.",
        fix: "Save the file as UTF-8, or convert it: `iconv -f LATIN1 -t UTF-8 FILE`.",
        bad: "", good: "",
    }
    ControlCharacter "control-character" Error "a character that nobody can see" {
        means: "YAML allows no control characters but tabs and line breaks. A file with NUL bytes is often UTF-16, or was \
                damaged by a full disk.",
        fix: "Remove the character. In a quoted text write it as an escape: `\"\\x1b\"`.",
        bad: "", good: "name: \"a\\x1bb\"\n",
    }
    TooLarge "too-large" Error "the file is larger than allowed" {
        means: "Files are bounded, so that a wrong path or a broken generator cannot fill the memory of a node that is \
                serving.",
        fix: "Split the file, or raise the bound.",
        bad: "", good: "",
    }
    TooDeep "too-deep" Error "nested too deeply" {
        means: "Lists and maps stand in each other deeper than allowed. Aliases count as what they stand for.",
        fix: "Flatten the file. Rules of people are a few levels deep; this is usually a generator that went round in \
              circles.",
        bad: "a: [[[[[[[[[[[[[[[[[[ … ]]]]]]]]]]]]]]]]]]\n", good: "a: [b]\n",
    }
    TooManyNodes "too-many-nodes" Error "too many values in one file" {
        means: "Every key, value, list and map of a file counts. The bound leaves room for well over 100 000 rules.",
        fix: "Split the file, or raise the bound.",
        bad: "", good: "",
    }
    AliasBomb "alias-bomb" Error "aliases stand for too much" {
        means: "An alias (`*x`) stands for everything below its anchor (`&x`). Aliases of aliases multiply: a file of ten \
                lines can stand for billions of values. What a file stands for is bounded like what is in it.",
        fix: "Use fewer aliases of large parts.",
        bad: "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n# … and so on\n", good: "a: &a [x, x]\nb: *a\n",
    }
    UnknownAnchor "unknown-anchor" Error "an alias without its anchor" {
        means: "`*x` stands for the value that was marked `&x` earlier in the same document. There is none, or the alias \
                stands inside of what it stands for.",
        fix: "Mark the value with `&x` before it is used. If a star is meant, quote it: `\"*\"`.",
        bad: "value: *\n", good: "value: \"*\"\n",
    }
    BadMerge "bad-merge" Error "`<<` merges something that is no map" {
        means: "`<<: *x` takes over the entries of a map, `<<: [*x, *y]` those of several. Own entries win.",
        fix: "Point the alias at a map.",
        bad: "a: &a 5\nb: {<<: *a}\n", good: "a: &a {c: 5}\nb: {<<: *a}\n",
    }
    Syntax "syntax" Error "this is not YAML" {
        means: "The text cannot be read as YAML. The place is where the reader gave up; the cause is often a line earlier: \
                a quote or bracket that is not closed, a line that is indented too far, a missing colon.",
        fix: "Look at the marked line and the one before it.",
        bad: "a: [1, 2\nb: 3\n", good: "a: [1, 2]\nb: 3\n",
    }
    WrongType "wrong-type" Error "another kind of value is expected here" {
        means: "A map stands where a single value belongs, a list where a map belongs, or the like.",
        fix: "Write what the message asks for. A dash too many or too few is the usual reason.",
        bad: "rate_limit:\n  - unit: minute\n", good: "rate_limit:\n  unit: minute\n",
    }
    UnknownKey "unknown-key" Error "nobody knows this key" {
        means: "The key means nothing here. It is refused and not skipped, because a limit with a typing mistake in it would \
                silently not be there. Keys that begin with `x-` are yours and are not looked at.",
        fix: "Take the spelling from the message, or remove the line.",
        bad: "rate_limit:\n  unit: minute\n  request_per_unit: 5\n",
        good: "rate_limit:\n  unit: minute\n  requests_per_unit: 5\n",
    }
    MisplacedKey "misplaced-key" Error "this key belongs elsewhere" {
        means: "The key exists, but not at this level. Usually the line is indented too far or not far enough.",
        fix: "Move it to where the message says.",
        bad: "- key: user\n  unit: minute\n", good: "- key: user\n  rate_limit:\n    unit: minute\n",
    }
    IgnoredKey "ignored-key" Warning "a key where it has no effect" {
        means: "The key exists, but not at this level, or it is given twice, or it says something that holds only without `unlimited`. \
                envoyproxy/ratelimit ignores it there in silence, and so does a node that stands in for it; everywhere else it is an \
                error.",
        fix: "Move it to where the message says, or remove it.",
        bad: "", good: "",
    }
    DuplicateKey "duplicate-key" Error "the same key twice" {
        means: "A map says the same thing twice. Which of the two was meant cannot be known.",
        fix: "Remove one of them.",
        bad: "unit: minute\nunit: hour\n", good: "unit: hour\n",
    }
    MissingKey "missing-key" Error "a key is missing" {
        means: "The map cannot do without this key. A key without a value counts as missing.",
        fix: "Add it.",
        bad: "rate_limit:\n  unit: minute\n", good: "rate_limit:\n  unit: minute\n  requests_per_unit: 5\n",
    }
    NotAFlag "not-a-flag" Error "neither true nor false" {
        means: "The value has to be a flag: `true`, `yes`, `on`, `y` or `false`, `no`, `off`, `n`.",
        fix: "Write `true` or `false`.",
        bad: "unlimited: ture\n", good: "unlimited: true\n",
    }
    NotANumber "not-a-number" Error "not a whole number" {
        means: "The value has to be a whole number: `100`, `1_000`, `0x10`. A number with a leading zero is refused, because \
                some readers of YAML take it for octal.",
        fix: "Write it with digits only.",
        bad: "requests_per_unit: 1,000\n", good: "requests_per_unit: 1_000\n",
    }
    OutOfRange "out-of-range" Error "too small or too large" {
        means: "The number or duration is not within what the key allows.",
        fix: "Choose one between the bounds in the message.",
        bad: "requests_per_unit: -5\n", good: "requests_per_unit: 5\n",
    }
    BadDuration "bad-duration" Error "not a duration" {
        means: "A duration is a whole number with a unit, or several: `500ms`, `15m`, `1h30m`, `2 days`. Units are `us`, \
                `ms`, `s`, `m`, `h`, `d`, `w` and their names. `month` is 30 days and `year` is 365.",
        fix: "Add a unit.",
        bad: "window: 60\n", good: "window: 60s\n",
    }
    BadRate "bad-rate" Error "not a rate" {
        means: "A rate is an amount and a window: `100/min`, `5/15m`, `10r/s`, `1000/month`. Without a window (`20`) it is a \
                number of things at the same time.",
        fix: "Write amount, slash, window.",
        bad: "limit: 100 per min\n", good: "limit: 100/min\n",
    }
    BadSize "bad-size" Error "not a size" {
        means: "A size is a whole number of bytes with a unit: `512KiB`, `32MiB`, `2GiB`, or `KB`, `MB`, `GB` for powers of ten.",
        fix: "Write it like that.",
        bad: "file_bytes_max: 32 megs\n", good: "file_bytes_max: 32MiB\n",
    }
    BadPercent "bad-percent" Error "not a percentage" {
        means: "A percentage is a number from 0 to 100 with at most two decimals: `25%`, `25`, `0.5%`.",
        fix: "Write it like that.",
        bad: "share: 1/4\n", good: "share: 25%\n",
    }
    BadWord "bad-word" Error "not one of the words" {
        means: "The key takes one of a few words.",
        fix: "Choose one of those in the message.",
        bad: "unit: minuet\n", good: "unit: minute\n",
    }
    BadCidr "bad-cidr" Error "not a range of addresses" {
        means: "An address or a range of addresses in CIDR notation: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`. The bits \
                behind the prefix have to be zero, because otherwise either half could be the mistake.",
        fix: "Write the first address of the range.",
        bad: "from: 10.1.2.3/8\n", good: "from: 10.0.0.0/8\n",
    }
    BadSocket "bad-socket" Error "not an address and a port" {
        means: "Where to listen: an address, a colon and a port. Names are not looked up, because what they mean may change. RLS may \
                listen at a socket of the file system: `unix:` and its path, which systems allow to have about a hundred bytes.",
        fix: "Write the address in numbers. `127.0.0.1` is this machine alone; `0.0.0.0` (or `[::]`) is everybody who can reach it. Choose \
              a short path for a socket, e.g. below `/run`.",
        bad: "listen: 8080\n", good: "listen: 127.0.0.1:8080\n",
    }
    BadInstant "bad-instant" Error "not a date and time" {
        means: "A point in time is a date, a time of day and an offset from UTC, as in RFC 3339. Without the offset it could be any of \
                a day's hours.",
        fix: "Write it like that; `Z` is UTC.",
        bad: "start: 2026-01-01\n", good: "start: 2026-01-01T00:00:00Z\n",
    }
    HalfOfTls "half-of-tls" Error "a certificate without its key" {
        means: "TLS needs a certificate and its private key. With one of them alone, a node that was meant to speak TLS would speak plain \
                text.",
        fix: "Set both, or none.",
        bad: "", good: "",
    }
    BadStoreUrl "bad-store-url" Error "this names no store" {
        means: "`store.url` says where the counters of the fleet are. With one that cannot be read, a node would count alone.",
        fix: "Write it as `redis://host:6379`, `redis+cluster://a:6379,b:6379`, `redis+sentinel://a:26379,b:26379/name` or `unix:///path`, \
              with `rediss` for TLS.",
        bad: "", good: "",
    }
    BadXds "bad-xds" Error "this names no source of rules" {
        means: "`xds` says from which server rules come, and how it is asked. With half of that, a node would wait for rules that never \
                come; with files beside it, nobody could say which rules hold.",
        fix: "Write `xds.server` as `host:port`, `xds.node_metadata` as `name=value` and `xds.headers` as `name:value`. Set either \
              `rules.path` or `xds.server`.",
        bad: "", good: "",
    }
    NoRuleFiles "no-rule-files" Error "no rule file was found" {
        means: "Below the folder of rules there is no file whose name ends in `.yaml`, `.yml` or `.json`. A folder that is not mounted \
                looks like this, so it is not taken for \"no rules\".",
        fix: "Check the path and the names of the files. Names that begin with a dot are left out.",
        bad: "", good: "",
    }
    NoRules "no-rules" Warning "a folder of rules without a file" {
        means: "The folder of rules is there and empty. A node that stands in for envoyproxy/ratelimit takes that as no rules at all, as \
                it does: nothing is limited.",
        fix: "Put rules there; they are loaded when they come. If there should be some, check that the right volume is mounted.",
        bad: "", good: "",
    }
    UnsteadyFiles "unsteady-files" Error "files that change while they are read" {
        means: "Each time the files were read, one of them changed meanwhile, so that old and new ones could have been mixed. The \
                rules in force stay.",
        fix: "Nothing, if somebody was writing: the next change is loaded. Else replace all files at once, by writing a new folder \
              and swapping a link.",
        bad: "", good: "",
    }
    EmptyText "empty-text" Error "a name that is empty" {
        means: "Domains, keys, tiers and what `replaces` names cannot be empty: no request could mean them.",
        fix: "Write the name.",
        bad: "domain: \"\"\n", good: "domain: shop\n",
    }
    DuplicateDomain "duplicate-domain" Error "the same domain twice" {
        means: "Two documents, in one file or in two, are about the same domain. Which settings hold could not be known.",
        fix: "Put all of its descriptors into one document, or allow it by the setting `rules.merge_domains`.",
        bad: "domain: shop\n---\ndomain: shop\n", good: "domain: shop\n---\ndomain: blog\n",
    }
    DuplicateDescriptor "duplicate-descriptor" Error "the same descriptor twice" {
        means: "Two siblings have the same key and value, so the second would never be found. An empty value is the same as none.",
        fix: "Join them: several limits go into `rate_limits`, children into one `descriptors`.",
        bad: "- key: user\n  rate_limit: { limit: 5/1s }\n- key: user\n  rate_limit: { limit: 100/1m }\n",
        good: "- key: user\n  rate_limits:\n    - { limit: 5/1s }\n    - { limit: 100/1m }\n",
    }
    DuplicateRule "duplicate-rule" Error "two limits that cannot be told apart" {
        means: "A limit is known, to its counters and metrics, by its `name`, or else by its algorithm and window. Two of one \
                descriptor have the same.",
        fix: "Give them names.",
        bad: "rate_limits:\n  - { limit: 5/1m }\n  - { limit: 9/1m }\n",
        good: "rate_limits:\n  - { limit: 5/1m, name: reads }\n  - { limit: 9/1m, name: all }\n",
    }
    TooManyLevels "too-many-levels" Error "descriptors nested too deeply" {
        means: "A path has as many levels as a request's descriptor has entries. The bound is far above any real one.",
        fix: "Check the indentation.",
        bad: "", good: "",
    }
    TooManyLimits "too-many-limits" Error "too many limits on one descriptor" {
        means: "A request that finds a descriptor asks every limit of it, so their number is bounded, and that of its tiers. The bounds \
                are far above what people write; this is usually a generator that made limits of what should be descriptors.",
        fix: "Make descriptors of them, told apart by their `value`.",
        bad: "", good: "",
    }
    SaidTwice "said-twice" Error "the same thing in two spellings" {
        means: "A limit is `limit`, or `requests_per_unit` and `unit`; a descriptor has `rate_limit` or `rate_limits`. Not both.",
        fix: "Keep one.",
        bad: "rate_limit: { limit: 5/1s, unit: minute }\n", good: "rate_limit: { limit: 5/1s }\n",
    }
    NoLimit "no-limit" Error "how much?" {
        means: "A limit needs a number, or says `unlimited: true`. A descriptor that always counts needs a limit.",
        fix: "Add it.",
        bad: "rate_limit: { algorithm: gcra }\n", good: "rate_limit: { limit: 5/1s, algorithm: gcra }\n",
    }
    NoWindow "no-window" Error "in which time?" {
        means: "All algorithms but `concurrency` count within a window.",
        fix: "Add it: `limit: 100/1m`, or `unit: minute`.",
        bad: "rate_limit: { limit: 100 }\n", good: "rate_limit: { limit: 100/1m }\n",
    }
    ForeignField "foreign-field" Error "a field of another algorithm" {
        means: "The field means nothing to the algorithm of this limit. It is refused and not skipped: whoever wrote `burst` expects one.",
        fix: "Remove it, or choose the algorithm that has it.",
        bad: "rate_limit: { limit: 5/1s, burst: 10 }\n", good: "rate_limit: { limit: 5/1s, algorithm: token_bucket, burst: 10 }\n",
    }
    UnlimitedLimit "unlimited-limit" Error "unlimited, and a limit" {
        means: "`unlimited: true` stands without numbers.",
        fix: "Remove one of them.",
        bad: "rate_limit: { unlimited: true, unit: day }\n", good: "rate_limit: { unlimited: true }\n",
    }
    NotACalendarUnit "not-a-calendar-unit" Error "a calendar has no such unit" {
        means: "`algorithm: calendar` counts by the days, weeks or months of a time zone.",
        fix: "Use one of them, or an algorithm that takes any window.",
        bad: "rate_limit: { limit: 5/2d, algorithm: calendar }\n", good: "rate_limit: { limit: 5/day, algorithm: calendar }\n",
    }
    ImpossibleLimit "impossible-limit" Error "numbers that cannot be counted" {
        means: "The algorithm cannot count this exactly; the message says why.",
        fix: "Do what the message says.",
        bad: "rate_limit: { limit: 20000/1h, algorithm: sliding_log }\n", good: "rate_limit: { limit: 20000/1h, strict: true }\n",
    }
    ReplacesItself "replaces-itself" Error "a limit that replaces itself" {
        means: "`replaces` names the limit that it stands in.",
        fix: "Write the name of another limit.",
        bad: "rate_limit: { limit: 5/1s, name: a, replaces: [{ name: a }] }\n",
        good: "rate_limit: { limit: 5/1s, name: a, replaces: [{ name: b }] }\n",
    }
    ReplacesInACircle "replaces-in-a-circle" Error "limits that replace each other in a circle" {
        means: "A replaces B, B replaces C, and C replaces A. A request that finds all three would not be limited at all.",
        fix: "Remove one of the `replaces`.",
        bad: "", good: "",
    }
    ShareWithoutWildcard "share-without-wildcard" Error "nothing to share" {
        means: "`share_threshold` lets all values that fit a wildcard share one counter. Without a wildcard there is one value, or all \
                have their own.",
        fix: "Write a value with `*`, or remove it. To count all values together, use `value: \"*\"`.",
        bad: "- key: path\n  share_threshold: true\n", good: "- key: path\n  value: \"*\"\n  share_threshold: true\n",
    }
    TierOfSeveral "tier-of-several" Error "which limit does the tier change?" {
        means: "The descriptor has several limits, and the tier says what changes without saying of which.",
        fix: "Write all limits of the tier, as a list.",
        bad: "rate_limits: [{ limit: 5/1s }, { limit: 100/1m }]\ntiers:\n  pro: { requests_per_unit: 10 }\n",
        good: "rate_limits: [{ limit: 5/1s }, { limit: 100/1m }]\ntiers:\n  pro: [{ limit: 10/1s }, { limit: 100/1m }]\n",
    }
    AlwaysOpen "always-open" Error "a limit for every request, of which counter?" {
        means: "`always: true` counts every request of the domain on one counter. So all values on its path are fixed, and there are \
                no tiers.",
        fix: "Give every descriptor on the path a `value` without `*`.",
        bad: "- key: global\n  always: true\n  rate_limit: { limit: 10000/1s }\n",
        good: "- key: global\n  value: all\n  always: true\n  rate_limit: { limit: 10000/1s }\n",
    }
    BadStep "bad-step" Error "a step that is none" {
        means: "A step of a rule test is a request (`ask`), or time that passes (`wait`), and says so completely.",
        fix: "Write a step for each.",
        bad: "steps:\n  - ask: { api_key: alice }\n    wait: 60s\n", good: "steps:\n  - ask: { api_key: alice }\n  - wait: 60s\n",
    }
    NoTests "no-tests" Error "there is no test" {
        means: "The file, or the folder, holds no test, or one that expects nothing. A run without tests proves nothing, so it is not \
                taken for one that passed.",
        fix: "Check the path, or write a test: see [testing-rules.md](testing-rules.md).",
        bad: "rules: shop.yaml\ntests: []\n",
        good: "rules: shop.yaml\ntests:\n  - name: a caller may call\n    steps:\n      - { ask: { api_key: alice }, expect: allowed }\n",
    }
    UnknownDomain "unknown-domain" Error "a domain without rules" {
        means: "The rules that are tested do not have this domain. Requests to it are allowed whatever they say, so the test would \
                prove nothing.",
        fix: "Check the spelling, and which files `rules` names.",
        bad: "", good: "",
    }
    TestFailed "test-failed" Error "a rule test failed" {
        means: "The rules do not do what the test expects. The message says what came out and which limit is told; below it stand the \
                time, the request, \
                and what became of every limit that was found.",
        fix: "Change the rules, or what the test expects of them.",
        bad: "", good: "",
    }
    UnknownVariable "unknown-variable" Warning "an environment variable that nobody reads" {
        means: "Variables that begin with `TIDEGATE_` are settings. This one is not the name of any.",
        fix: "Check the spelling; `tidegate config settings` lists them.",
        bad: "", good: "",
    }
    BadVariable "bad-variable" Error "an environment variable of envoyproxy/ratelimit that cannot be honoured" {
        means: "A node that is started as `ratelimit` takes the environment variables of envoyproxy/ratelimit. This one has a value that \
                is none, or asks for something that is not done here.",
        fix: "Do what the message says; docs/migrating-from-envoyproxy-ratelimit.md has all variables and what becomes of each.",
        bad: "", good: "",
    }
    PlainControl "plain-control" Error "a control plane that others reach without TLS" {
        means: "Whoever reads a token on its way can change every limit. The API listens where other machines can reach it, and nothing \
                encrypts.",
        fix: "Give it certificates, let it listen on this machine alone, or say by `control.allow_plain` that something else encrypts.",
        bad: "", good: "",
    }
    BadDatabase "bad-database" Error "a database that is not known" {
        means: "The control plane keeps what it knows in PostgreSQL, which is named by a URL, or in a file of SQLite, which is named by \
                nothing.",
        fix: "Write `postgres://user@host:5432/name`, or leave it out.",
        bad: "", good: "",
    }
    PasswordInUrl "password-in-url" Warning "a password where many can read it" {
        means: "A URL stands in files, command lines and lists of processes. A password in it works, and is never shown by Tidegate.",
        fix: "Write the password into a file that only the node may read, and name it by `store.password_file`.",
        bad: "", good: "",
    }
    LimitZero "limit-zero" Warning "a limit that refuses everything" {
        means: "A limit of 0 refuses every request. That is how an address is shut out, and what a forgotten number comes to.",
        fix: "Nothing has to be done if it is meant.",
        bad: "rate_limit: { unit: minute }\n", good: "rate_limit: { unit: minute, requests_per_unit: 5 }\n",
    }
    IgnoredAmount "ignored-amount" Warning "a number beside `unlimited`" {
        means: "`unlimited: true` stands without numbers. envoyproxy/ratelimit takes this one, so it is not refused.",
        fix: "Remove one of them.",
        bad: "rate_limit: { unlimited: true, requests_per_unit: 5 }\n", good: "rate_limit: { unlimited: true }\n",
    }
    EnforceInShadow "enforce-in-shadow" Warning "a rollout that is in shadow" {
        means: "In `shadow_mode` nobody is refused, so `enforce` has no effect.",
        fix: "Remove `shadow_mode` to begin the rollout.",
        bad: "- key: user\n  shadow_mode: true\n  rate_limit: { limit: 5/1s, enforce: 10% }\n",
        good: "- key: user\n  rate_limit: { limit: 5/1s, enforce: 10% }\n",
    }
    ReplacesNobody "replaces-nobody" Warning "replaces a limit that is not there" {
        means: "No limit of the domain has this name.",
        fix: "Check the spelling.",
        bad: "", good: "",
    }
    ReplaceEachOther "replace-each-other" Warning "two limits that replace each other" {
        means: "Were both dropped, a request that finds both would not be limited at all. Both stay.",
        fix: "Remove one of the two `replaces`.",
        bad: "", good: "",
    }
    TierIsAKey "tier-is-a-key" Warning "`trust_tier` has no effect" {
        means: "The domain has a descriptor whose key is `tier`, so the entry is matched against it and says nothing about the caller.",
        fix: "Give the descriptor another key, or remove `trust_tier`.",
        bad: "", good: "",
    }
    OddName "odd-name" Warning "a name that headers cannot carry" {
        means: "Names of limits are sent in headers, which carry printable ASCII.",
        fix: "Use up to 100 printable ASCII characters.",
        bad: "rate_limit: { limit: 5/1s, name: größe }\n", good: "rate_limit: { limit: 5/1s, name: size }\n",
    }
    Unreachable "unreachable" Warning "a descriptor that is never found" {
        means: "A sibling with `value: \"*\"` fits every value and is tried first. Fixed values come first wherever they stand, then \
                wildcards in the order of the file, then the descriptor without a value. Or the descriptor's key is the entry of a \
                `lease_id` or `reservation_id`: those are taken out before anything is looked for.",
        fix: "Move it before the `*`, or remove one of them. Let an id have an entry of its own.",
        bad: "- key: path\n  value: \"*\"\n- key: path\n  value: \"/api/*\"\n",
        good: "- key: path\n  value: \"/api/*\"\n- key: path\n  value: \"*\"\n",
    }
    NotYet "not-yet" Warning "understood, but without effect yet" {
        means: "The key or word is part of the language, and this version takes it, but acts as the message says.",
        fix: "Nothing has to be done. Remove it to silence the warning.",
        bad: "", good: "",
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.id())
    }
}

/// `docs/diagnostics.md`.
pub fn document() -> String {
    let mut text = String::from(
        "# Diagnostics\n\n<!-- Made from crates/tidegate-config/src/codes.rs: TIDEGATE_BLESS=1 cargo test -p tidegate-config -->\n\n\
         What can be wrong with a file, by the code in the message. An error refuses the file; a warning does not.\n\n\
         | code | severity | |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        text += &format!("| [`{code}`](#{code}) | {} | {} |\n", code.severity().name(), code.page().title);
    }
    for code in Code::ALL {
        let page = code.page();
        text += &format!(
            "\n## {code}\n\n**{}** ({}). {}\n\n{}\n",
            capital(page.title),
            code.severity().name(),
            page.means,
            page.fix
        );
        for (word, example) in [("Bad", page.bad), ("Good", page.good)] {
            if !example.is_empty() {
                text += &format!("\n{word}:\n\n```yaml\n{example}```\n");
            }
        }
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kebab_case_and_unlike_each_other() {
        let mut ids: Vec<&str> = Code::ALL.iter().map(|code| code.id()).collect();
        assert!(ids.iter().all(|id| id.split('-').all(
            |part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        )));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), Code::ALL.len());
    }
}
