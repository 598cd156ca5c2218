"""International bank account numbers: their length by country, and their check digits (ISO 13616, ISO 7064)."""

from __future__ import annotations

_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FO FI GL NL SD FK",
        19: "MK SI",
        20: "AT BA EE KZ XK LT LU MN",
        21: "HR LV LI CH",
        22: "BH BG CR GE DE IE ME RS GB VA",
        23: "GI IL TL AE IQ OM SO",
        24: "AD CZ MD PK RO SA SK ES SE TN VG DZ",
        25: "AO CV GW LY MZ PT ST",
        26: "IS TR",
        27: "BI CF CM CG DJ FR GA GQ GR IT KM MC MG MR SM TD",
        28: "AL AZ BJ BF BY CI CY DO GT HN HU LB MA ML NE NI PL SN SV TG",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}


def iban_length(country: str) -> int | None:
    """The number of characters of the country's numbers; None for a country without."""
    return _LENGTHS.get(country.upper())


def valid_iban(letters: str) -> bool:
    """Whether the check digits of a number without separators are right."""
    turned = letters[4:] + letters[:4]
    return int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1
