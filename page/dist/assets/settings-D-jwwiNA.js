import{b as t,E as e}from"./ui-CT8jbBbe.js";function i(){return t(e,{title:"settings"})}export{i as default};
