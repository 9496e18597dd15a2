"""A table of keys with an issuer's prefix: the prefixes, and the pattern after them.

Patterns write `<h>` for a lower-case hexadecimal digit, `<H>` for any, `<a>` for a letter or digit, `<w>` for a letter,
digit, `_` or `-`, and `<b>` for a base64 character. A test checks the patterns against the public rules of gitleaks.
"""

from __future__ import annotations

CLASSES = {"h": "[0-9a-f]", "H": "[0-9a-fA-F]", "a": "[A-Za-z0-9]", "w": "[A-Za-z0-9_-]", "b": "[A-Za-z0-9+/]"}
_HAS_DIGIT = r"(?=[A-Za-z_-]*\d)"
"""Required if the prefix also occurs in identifiers."""
_HEX_PAIRS = " ".join(f"sk_{n:02x}" for n in range(256))

KEYS: tuple[tuple[str, str], ...] = (
    # Models, agents and their tools
    ("sk-or-v1-", "<h>{32,64}"),
    ("gsk_ ntn_ pplx- csk-", "<a>{40,64}"),
    ("xai-", "<a>{60,100}"),
    ("r8_", "<a>{37}"),
    ("tvly-", "<w>{24,64}"),
    ("lsv2_pt_ lsv2_sk_", "<h>{32}_<h>{10}"),
    ("sk-lf-", "[0-9a-f-]{36}"),
    ("nvapi-", "<w>{40,100}"),
    ("pcsk_", "[A-Za-z0-9_]{40,100}"),
    ("tgp_v1_", "<w>{40,64}"),
    ("jina_", "<a>{40,80}"),
    ("fc-", "<h>{32}(?!-)"),
    ("e2b_ sbp_", "<h>{40}"),
    (_HEX_PAIRS, "<h>{46}"),
    ("fw_", _HAS_DIGIT + "<a>{22,40}(?![0-9A-Za-z_])"),
    ("pa-", _HAS_DIGIT + "<w>{43}(?![_-])"),
    # Code, packages and infrastructure
    ("dckr_pat_", "<w>{20,64}"),
    ("pmak-", "<H>{24}-<H>{34}"),
    ("atatt3", "<w>{50,300}=?[0-9A-F]{0,8}"),
    ("atbb", "<a>{32}"),
    ("sntrys_ sntryu_", "[A-Za-z0-9+/=_]{40,400}"),
    ("clojars_", "<a>{60}"),
    ("rubygems_", "<h>{48}"),
    ("akcp", "<a>{69}"),
    ("cmvmd", "<a>{59}"),
    ("api-", _HAS_DIGIT + "[A-Z0-9]{26}"),
    ("pul-", "<h>{40}"),
    ("pnu_", "<a>{36}"),
    ("ico-", "<a>{32}"),
    ("sgp_", "(?:<H>{16}_|local_)?<H>{40}"),
    ("sha256~", "<w>{43}"),
    ("pat. sat.", r"<w>{22}\.<a>{24}\.<a>{20}"),
    # Clouds, data and monitoring
    ("dapi", r"<h>{32}(?:-\d)?(?![0-9A-Za-z])"),
    ("dop_v1_ doo_v1_ dor_v1_", "<h>{64}"),
    ("hvs. hvb.", "<w>{24,300}"),
    ("glsa_", "<a>{32}_<H>{8}"),
    ("glc_", "<b>{32,400}={0,3}"),
    ("eyjrijoi", "<a>{70,400}={0,3}"),
    ("nrak-", "[A-Z0-9]{27}"),
    ("nrii-", "[A-Za-z0-9-]{32}"),
    ("dt0c01.", r"<a>{24}\.<a>{64}"),
    ("hrku-", "<w>{30,80}"),
    ("dp.pt. dp.st. dp.ct. dp.sa.", "[A-Za-z0-9._-]{40,80}"),
    ("pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w=.-]{32,64}"),
    ("fm2_ fm1a_ fm1r_", "[A-Za-z0-9+/=]{60,1024}"),
    ("fo1_ tk-us-", "<w>{43,48}"),
    ("v1.0-", "<h>{24}-<h>{146}"),
    ("rnd_", _HAS_DIGIT + "<a>{32}(?!_)"),
    ("nfp_", "<a>{36,64}"),
    ("ltai", "<a>{20}"),
    ("4b1d", "<a>{38}"),
    ("bedrock-api-key-", "[A-Za-z0-9+/=%]{40,2048}"),
    ("ops_eyj", "<b>{100,2048}={0,3}"),
    ("a3-", "[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"),
    # Work, shops, payment and mail
    ("lin_api_", "<a>{32,64}"),
    ("figd_", "<w>{30,64}"),
    ("secret_", _HAS_DIGIT + "<a>{43}(?!_)"),
    ("cfpat-", "<w>{40,64}"),
    ("tfp_", r"[\w.=-]{40,64}"),
    ("key-", "<h>{32}"),
    ("xkeysib-", "<h>{64}-<a>{16}"),
    ("shpat_ shpss_ shpca_ shppa_", "<H>{32}"),
    ("shippo_live_ shippo_test_", "<H>{40}"),
    ("ezak eztk", "<a>{54}"),
    ("duffel_test_ duffel_live_", r"[\w=-]{43}"),
    ("flwseck_test-", "[a-h0-9]{12,32}(?:-X)?"),
    ("sm_aat_ sm_pat_ sm_sat_", "<a>{16}"),
    ("fio-u-", r"[\w=-]{64}"),
    ("p8e-", "<a>{32}"),
    ("rdme_", "[a-z0-9]{70}"),
    ("s-s4t2ud- s-s4t2af-", "<h>{64}"),
    ("glffct-", "<w>{20}"),
    ("_gitlab_session=", "<a>{32}"),
    ("authress_ scauth_", r"[\w.+/=-]{40,200}"),
    # Prefixes that also occur inside base64
    ("eaam eaac", "(?<![/+].{4})<a>{100,400}"),
    ("eaaa", "(?<![/+].{4})<w>{60}(?![+/=_-])"),
    ("zxlk", "(?<![/+].{4})<b>{40,4096}={0,2}"),
)
"""Lower-case prefixes, separated by spaces, and the pattern of the rest."""
