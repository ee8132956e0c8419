"""Data of countries: currency, telephone numbers, time zone, towns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Country:
    """One country. In patterns, # is a digit, % a digit from 2 to 9, ? a capital letter, {} a town's postcode."""

    code: str
    name: str
    currency: str
    phone: str
    timezone: str
    towns: tuple[str, ...]


def country(code: str) -> Country:
    """Return the country of an ISO 3166-1 code in COUNTRIES."""
    name, currency, phone, timezone, towns = COUNTRIES[code].split("|")
    return Country(code, name, currency, phone, timezone, tuple(towns.split(";")))


# Telephone numbers come from the ranges that a country reserves for fiction, where such a range is known.
COUNTRIES: Final = {
    "AT": "Austria|EUR|+43 660 ### ####|Europe/Vienna|{10#0} Wien;{80##} Graz;{4020} Linz;{5020} Salzburg;{6020} "
    "Innsbruck",
    "AU": "Australia|AUD|+61 2 5550 ####|Australia/Sydney|Sydney, NSW {20##};Melbourne, VIC {30##};Brisbane, QLD "
    "{40##};Hobart, TAS {70##};Fremantle, WA {6160}",
    "BE": "Belgium|EUR|+32 4## ## ## ##|Europe/Brussels|{10#0} Brussel;{9000} Gent;{20#0} Antwerpen;{3000} Leuven;"
    "{4000} Liège",
    "BR": "Brazil|BRL|+55 11 9#### ####|America/Sao_Paulo|São Paulo, SP {01###-###};Curitiba, PR {80###-###};Recife, "
    "PE {50###-###};Belo Horizonte, MG {30###-###};Florianópolis, SC {88###-###}",
    "CA": "Canada|CAD|+1 %## 555 01##|America/Toronto|Toronto, ON {M5V #?#};Ottawa, ON {K1P #?#};Halifax, NS {B3J "
    "#?#};Montréal, QC {H2X #?#};Victoria, BC {V8W #?#}",
    "CH": "Switzerland|CHF|+41 79 ### ## ##|Europe/Zurich|{80##} Zürich;{30##} Bern;{40##} Basel;{9000} St. Gallen;"
    "{1003} Lausanne",
    "CN": "China|CNY|+86 1## #### ####|Asia/Shanghai|Shanghai {2000##};Hangzhou {3100##};Chengdu {6100##}",
    "CZ": "Czechia|CZK|+420 7## ### ###|Europe/Prague|{1## 00} Praha;{602 00} Brno;{301 00} Plzeň;{779 00} Olomouc",
    "DE": "Germany|EUR|+49 30 23125 ###|Europe/Berlin|{101##} Berlin;{803##} München;{501##} Köln;{042##} Leipzig;"
    "{791##} Freiburg;{240##} Kiel;{930##} Würzburg",
    "DK": "Denmark|DKK|+45 ## ## ## ##|Europe/Copenhagen|{2100} København;{8000} Aarhus;{5000} Odense;{9000} Aalborg",
    "ES": "Spain|EUR|+34 6## ### ###|Europe/Madrid|{280##} Madrid;{080##} Barcelona;{460##} Valencia;{410##} Sevilla;"
    "{480##} Bilbao;{180##} Granada",
    "FI": "Finland|EUR|+358 40 ### ####|Europe/Helsinki|{001#0} Helsinki;{33100} Tampere;{20100} Turku;{90100} Oulu",
    "FR": "France|EUR|+33 6 39 98 ## ##|Europe/Paris|{7501#} Paris;{6900#} Lyon;{44000} Nantes;{31000} Toulouse;"
    "{35000} Rennes;{67000} Strasbourg;{21000} Dijon",
    "GB": "United Kingdom|GBP|+44 7700 900###|Europe/London|London {SE1# #??};Leeds {LS# #??};Bristol {BS# #??};"
    "Norwich {NR# #??};Edinburgh {EH# #??};Cardiff {CF1# #??};York {YO1# #??}",
    "IE": "Ireland|EUR|+353 20 91# ####|Europe/Dublin|Dublin {D0# ?###};Cork {T12 ?###};Galway {H91 ?###};Limerick "
    "{V94 ?###}",
    "IN": "India|INR|+91 9#### #####|Asia/Kolkata|Pune {4110##};Bengaluru {5600##};Chennai {6000##};Jaipur {3020##};"
    "Kochi {6820##}",
    "IT": "Italy|EUR|+39 3## ### ####|Europe/Rome|{201##} Milano;{001##} Roma;{101##} Torino;{401##} Bologna;{501##} "
    "Firenze;{701##} Bari",
    "JP": "Japan|JPY|+81 90 #### ####|Asia/Tokyo|Osaka {530-00##};Tokyo {150-00##};Sapporo {060-00##};Fukuoka "
    "{810-00##}",
    "KR": "South Korea|KRW|+82 10 #### ####|Asia/Seoul|Seoul {04###};Busan {48###};Daejeon {34###};Daegu {41###}",
    "MX": "Mexico|MXN|+52 55 #### ####|America/Mexico_City|{06###} Ciudad de México;{44###} Guadalajara;{720##} "
    "Puebla;{970##} Mérida",
    "NG": "Nigeria|NGN|+234 80# ### ####|Africa/Lagos|Lagos {1012##};Abuja {9002##};Ibadan {2002##};Enugu {4001##}",
    "NL": "Netherlands|EUR|+31 6 ## ## ## ##|Europe/Amsterdam|{101# ??} Amsterdam;{351# ??} Utrecht;{971# ??} "
    "Groningen;{301# ??} Rotterdam;{231# ??} Leiden;{651# ??} Nijmegen",
    "NO": "Norway|NOK|+47 4## ## ###|Europe/Oslo|{01##} Oslo;{50##} Bergen;{70##} Trondheim;{90##} Tromsø",
    "NZ": "New Zealand|NZD|+64 21 ### ####|Pacific/Auckland|Auckland {10##};Wellington {60##};Dunedin {90##}",
    "PL": "Poland|PLN|+48 5## ### ###|Europe/Warsaw|{00-###} Warszawa;{31-###} Kraków;{80-###} Gdańsk;{50-###} "
    "Wrocław;{61-###} Poznań;{20-###} Lublin",
    "PT": "Portugal|EUR|+351 91# ### ###|Europe/Lisbon|{1100-###} Lisboa;{4000-###} Porto;{3000-###} Coimbra;"
    "{4700-###} Braga;{8000-###} Faro;{7000-###} Évora",
    "SE": "Sweden|SEK|+46 70 174 06 %#|Europe/Stockholm|{114 ##} Stockholm;{411 ##} Göteborg;{211 ##} Malmö;{753 ##} "
    "Uppsala;{582 ##} Linköping;{903 ##} Umeå",
    "SG": "Singapore|SGD|+65 9### ####|Asia/Singapore|Singapore {0791##};Singapore {2388##};Singapore {5208##}",
    "US": "United States|USD|+1 %## 555 01##|America/New_York|Portland, OR {972##};Columbus, OH {432##};Denver, CO "
    "{802##};Savannah, GA {314##};Albany, NY {122##};Madison, WI {537##};Tucson, AZ {857##};Boston, MA {021##}",
    "ZA": "South Africa|ZAR|+27 82 ### ####|Africa/Johannesburg|Cape Town {80##};Durban {40##};Pretoria {00##}",
}
